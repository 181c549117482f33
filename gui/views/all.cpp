// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/all.h"

#include <array>

namespace foretrain::gui {

std::span<const ViewEntry> views() {
  static constexpr std::array list = {
      ViewEntry{"table", "Table",
                "Layouts that fit, the best first. A click on a title sorts, Shift adds a key; the boxes below filter "
                "(8, >4, 2~8, 1f1b|zb, /re/). Space pins, B sets the baseline.",
                make_table_view},
      ViewEntry{
          "pareto", "Pareto",
          "Every shown layout by two of its figures. The line joins those that no other beats in both step time and "
          "memory. Drag selects, wheel zooms, arrows walk along the line. Colour and size may show a third and a "
          "fourth.",
          make_pareto_view},
      ViewEntry{
          "parallel", "Parallel",
          "A line per layout through its fields: those that matter most first. Drag on an axis to filter, on its title "
          "to move it, click the title to flip it, with Ctrl to make it logarithmic, double click to type bounds. "
          "Coloured "
          "lines are the best, grey is how many pass. Keys: arrows choose an axis, comma and full stop move it, V "
          "flips, "
          "L is logarithmic, Enter types bounds.",
          make_parallel_view},
      ViewEntry{"memory", "Memory",
                "Where the memory of the selected layout goes, stage by stage, against what the device has.",
                make_memory_view},
      ViewEntry{"timeline", "Timeline",
                "One step of the selected layout, replayed op by op: compute above, transfers below, gaps are bubbles. "
                "A micro-batch under the pointer lights up on every stage, with arrows along its way. Comma and full "
                "stop choose "
                "one by keyboard.",
                make_timeline_view},
      ViewEntry{
          "topology", "Topology",
          "Where the ranks of the selected layout lie in the cluster, coloured by their place on an axis. A click on a "
          "device frames its groups.",
          make_topology_view},
      ViewEntry{"waterfall", "Step time",
                "What the step's time is spent on along its critical path, beside the baseline (or the best).",
                make_waterfall_view},
      ViewEntry{
          "rejections", "Left out",
          "Why layouts are not in the table: rules and bounds with their counts, and those that missed by the least.",
          make_rejections_view},
      ViewEntry{"compare", "Compare",
                "Pinned layouts side by side: the figures that differ, and their schedules on one scale.",
                make_compare_view},
      ViewEntry{"sensitivity", "What if",
                "How the best layouts would rank on a cluster with faster links, devices or more memory.",
                make_sensitivity_view},
      ViewEntry{"run", "Run",
                "Executes the selected layout, on this machine or as a Slurm job: each step as it is done, and what "
                "the ranks say. The run is kept in the session file.",
                make_run_view},
      ViewEntry{
          "measured", "Measured",
          "Runs of this session file against their predictions, term by term and op by op; and what a calibration from "
          "them would change.",
          make_measured_view},
      ViewEntry{"accuracy", "Accuracy", "Predictions of published runs against what their authors measured.",
                make_accuracy_view},
  };
  return list;
}

} // namespace foretrain::gui
