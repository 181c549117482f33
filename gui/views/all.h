// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <memory>

#include "gui/views/view.h"

/// The maker of each view; each lives in the file of its name.
namespace foretrain::gui {

std::unique_ptr<View> make_accuracy_view(ViewContext context);
std::unique_ptr<View> make_compare_view(ViewContext context);
std::unique_ptr<View> make_measured_view(ViewContext context);
std::unique_ptr<View> make_memory_view(ViewContext context);
std::unique_ptr<View> make_parallel_view(ViewContext context);
std::unique_ptr<View> make_pareto_view(ViewContext context);
std::unique_ptr<View> make_rejections_view(ViewContext context);
std::unique_ptr<View> make_run_view(ViewContext context);
std::unique_ptr<View> make_sensitivity_view(ViewContext context);
std::unique_ptr<View> make_table_view(ViewContext context);
std::unique_ptr<View> make_timeline_view(ViewContext context);
std::unique_ptr<View> make_topology_view(ViewContext context);
std::unique_ptr<View> make_waterfall_view(ViewContext context);

} // namespace foretrain::gui
