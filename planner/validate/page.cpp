#include <algorithm>
#include <charconv>
#include <sstream>

#include <fmt/format.h>

#include "planner/validate/accuracy.h"
#include "planner/validate/targets.h"

namespace foretrain::validation {
namespace {

constexpr const char* kFirstHeading = "## Figures";
constexpr const char* kSources = "## Sources";

std::string percent(int count, double value, const char* format = "{:.1f}") {
  return count == 0 ? "-" : fmt::format(fmt::runtime(format), value);
}

std::string errors_cells(const ErrorSummary& e) {
  return fmt::format("{} | {} | {} | {}", e.count, percent(e.count, e.mean_absolute),
                     percent(e.count, e.mean_signed, "{:+.1f}"), percent(e.count, e.p90_absolute));
}

std::string figures(const Accuracy& a) {
  std::string text = std::string(kFirstHeading) +
                     "\n\nStep time, in percent of the measured one.\n\n"
                     "| rows | timed | mean abs | mean | p90 abs | over sources: mean abs | mean |\n"
                     "| --- | --- | --- | --- | --- | --- | --- |\n";
  const auto line = [&](const char* name, const AccuracyOf& of) {
    text += fmt::format("| {} | {} | {} | {} |\n", name, errors_cells(of.summary.time),
                        percent(of.sources.sources, of.sources.mean_absolute),
                        percent(of.sources.sources, of.sources.mean_signed, "{:+.1f}"));
  };
  line("all", a.all);
  line("held-out", a.held_out);
  text += "\nWhat one gets without a planner, on the same rows: one utilisation per device (the median of its rows "
          "that are not "
          "held out), and the utilisation of the nearest measured row of another group.\n\n"
          "| rows | method | timed | mean abs | mean | p90 abs |\n| --- | --- | --- | --- | --- | --- |\n";
  const auto base = [&](const char* name, const AccuracyOf& of) {
    text += fmt::format("| {} | one utilisation | {} |\n", name, errors_cells(of.baselines.by_utilisation));
    text += fmt::format("| {} | nearest row | {} |\n", name, errors_cells(of.baselines.by_nearest));
  };
  base("all", a.all);
  base("held-out", a.held_out);
  return text;
}

std::string targets(const std::vector<ValidatedRow>& rows, const Accuracy& a) {
  std::string text =
      "\n## Targets\n\n| what | target | rows | reached | held-out | met |\n| --- | --- | --- | --- | --- | --- |\n";
  for (const TargetLine& line : target_lines(rows, a))
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", line.what, line.target, line.rows, line.reached,
                        line.held_out, line.met ? "yes" : "no");
  return text;
}

std::string collectives(const Accuracy& a) {
  std::string text =
      "\n## Collectives\n\nAgainst the measured tables, in percent, with every second size and with one number of "
      "devices left out.\n\n| device | sizes left out | median | p90 | points of a count left out | median | p90 |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  const auto cells = [](const std::vector<double>& errors) {
    const int count = static_cast<int>(errors.size());
    return fmt::format("{} | {} | {}", count, percent(count, nearest_rank(errors, 0.5)),
                       percent(count, nearest_rank(errors, 0.9)));
  };
  for (const CollectiveErrors& errors : a.collectives)
    text += fmt::format("| {} | {} | {} |\n", errors.device, cells(errors.sizes), cells(errors.counts));
  return text;
}

std::string sources(const Accuracy& a) {
  std::string text = std::string("\n") + kSources +
                     "\n\n"
                     "| source | rows | eligible | predicted | timed | mean abs | mean | p90 abs |\n"
                     "| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const auto& [source, s] : a.by_source)
    text += fmt::format("| {} | {} | {} | {} | {} |\n", source, s.rows, s.eligible, s.predicted, errors_cells(s.time));
  const ValidationSummary& all = a.all.summary;
  text += fmt::format("\nEligible rows that are not predicted, {} of {}:\n\n| source | reason | rows |\n"
                      "| --- | --- | --- |\n",
                      all.eligible - all.predicted, all.eligible);
  for (const auto& [source, s] : a.by_source)
    for (const auto& [reason, count] : s.unpredicted) text += fmt::format("| {} | {} | {} |\n", source, reason, count);
  if (all.unsteady > 0)
    text += fmt::format(
        "\n{} of the compared rows are of runs whose steps differ much (quartiles further apart than a tenth of the "
        "median); they are judged like the rest.\n",
        all.unsteady);
  text += "\n## Skipped rows\n\n| reason | rows |\n| --- | --- |\n";
  for (const auto& [reason, count] : a.all.summary.skipped) text += fmt::format("| {} | {} |\n", reason, count);
  if (!a.all.summary.refused.empty()) {
    text += "\nRuns that ran and that a rule refuses:\n\n| rule | runs |\n| --- | --- |\n";
    for (const auto& [rule, count] : a.all.summary.refused) text += fmt::format("| {} | {} |\n", rule, count);
  }
  return text;
}

std::string memory(const Accuracy& a) {
  std::string text = "\n## Memory\n\nIn percent of the measured figure, by what it is.\n\n"
                     "| figure | rows | mean abs | mean | p90 abs |\n| --- | --- | --- | --- | --- |\n";
  for (const auto& [kind, errors] : a.all.summary.memory_by_kind)
    text += fmt::format("| {} | {} |\n", kind, errors_cells(errors));
  const ValidationSummary& s = a.all.summary;
  const int judged = s.ran_out_of_memory + s.ran - s.open_out_of_memory;
  const int right = judged - (s.ran_out_of_memory - s.foreseen) - s.wrongly_out_of_memory - s.called_illegal;
  text += fmt::format(
      "\n{} runs ended out of memory, {} of them foreseen; {} that ran are predicted not to fit. Right: {:.1f} % "
      "of {} runs. {} more that ran are predicted not to fit, but their source leaves recomputation or offload open: "
      "they are not judged.\n",
      s.ran_out_of_memory, s.foreseen, s.wrongly_out_of_memory, judged > 0 ? 100.0 * right / judged : 0.0, judged,
      s.open_out_of_memory);
  return text;
}

std::string ranking(const Accuracy& a) {
  const RankingSummary s = summarise_groups(a.groups);
  std::string text = fmt::format(
      "\n## Ranking\n\n{} groups of at least five timed runs of one job on one machine: Spearman {:.3f} in the mean, "
      "{:.3f} at worst; regret {:.1f} % in the mean, {:.1f} % at worst; {} runs out of memory among the ten "
      "fastest that are predicted to fit.\n\n| group | rows | Spearman | regret % | false fits |\n"
      "| --- | --- | --- | --- | --- |\n",
      s.groups, s.mean_spearman, s.groups > 0 ? s.worst_spearman : 0.0, s.mean_regret, s.worst_regret,
      s.false_fits_on_top);
  for (const RankedGroup& g : a.groups) {
    std::string name = g.name;
    std::replace(name.begin(), name.end(), '|', ',');
    text += fmt::format("| {} | {} | {:.2f} | {:.1f} | {} |\n", name, g.rows, g.spearman, g.regret_percent,
                        g.false_fits_on_top);
  }
  return text;
}

std::string intervals(const Accuracy& a) {
  std::string text =
      "\n## Intervals\n\nShare of measured values inside the 80 % interval, and its mean width relative to the "
      "prediction.\n\n| rows | figure | level | rows | covered % | width % |\n| --- | --- | --- | --- | --- | --- |\n";
  const auto lines = [&](const char* name, const char* figure, const std::map<std::string, Coverage>& coverage) {
    for (const auto& [level, c] : coverage)
      text += fmt::format("| {} | {} | {} | {} | {:.0f} | {:.0f} |\n", name, figure, level, c.rows, 100 * c.covered,
                          100 * c.mean_width);
  };
  lines("all", "step time", a.all.time_coverage);
  lines("held-out", "step time", a.held_out.time_coverage);
  lines("all", "memory", a.all.memory_coverage);
  lines("held-out", "memory", a.held_out.memory_coverage);
  return text;
}

std::string constants(const Accuracy& a) {
  std::string text =
      fmt::format("\n## Fitted constants\n\n{} constants are fitted to training steps, none to a held-out row.\n\n"
                  "| owner | constant | value | range | meaning | fitted to |\n| --- | --- | --- | --- | --- | --- |\n",
                  a.constants.size());
  for (const FittedConstant& c : a.constants)
    text += fmt::format("| {} | `{}` | {:.4g} | {:.4g} to {:.4g} | {} | {} |\n", c.owner, c.key, c.value, c.low, c.high,
                        c.meaning, c.fitted_to);
  return text;
}

/// Cells of the table lines of a page below a heading.
std::vector<std::vector<std::string>> table_below(const std::string& page, const std::string& heading) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(page);
  bool inside = false;
  for (std::string text; std::getline(lines, text);) {
    if (text.rfind("## ", 0) == 0) inside = text == heading;
    if (!inside || text.rfind("| ", 0) != 0) continue;
    std::vector<std::string> cells;
    std::istringstream parts(text.substr(2));
    for (std::string cell; std::getline(parts, cell, '|');) {
      const auto begin = cell.find_first_not_of(' ');
      const auto end = cell.find_last_not_of(' ');
      cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

std::optional<double> number(const std::string& text) {
  double value = 0;
  const char* begin = text.data() + (!text.empty() && text.front() == '+' ? 1 : 0);
  const auto [end, code] = std::from_chars(begin, text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

} // namespace

std::string remarks_of(const std::string& page) {
  return page.substr(0, page.find(kFirstHeading));
}

std::string accuracy_page(const std::vector<ValidatedRow>& rows, const Accuracy& a, const std::string& remarks) {
  std::string text = remarks + figures(a) + targets(rows, a) + sources(a) + memory(a) + collectives(a) + ranking(a) +
                     intervals(a) + constants(a);
  text += "\n## Furthest off\n\n";
  for (const std::string& row : a.worst) text += "- " + row + "\n";
  return text;
}

std::vector<std::string> worse_than(const std::string& page, const Accuracy& a) {
  std::vector<std::string> failures;
  const auto compare = [&](const std::string& what, const std::string& stored, int count, double now) {
    const auto value = number(stored);
    if (value && count > 0 && now > *value + kMargin)
      failures.push_back(fmt::format("{}: mean absolute error {:.1f} %, stored {:.1f} %", what, now, *value));
  };
  constexpr std::size_t kMean = 2; // cells of "Figures": name, timed, mean abs
  for (const auto& cells : table_below(page, kFirstHeading)) {
    if (cells.size() != 7) continue;
    if (cells[0] == "all")
      compare("all rows", cells[kMean], a.all.summary.time.count, a.all.summary.time.mean_absolute);
    if (cells[0] == "held-out")
      compare("held-out rows", cells[kMean], a.held_out.summary.time.count, a.held_out.summary.time.mean_absolute);
  }
  constexpr int kFewest = 10;
  for (const auto& cells : table_below(page, kSources)) {
    if (cells.size() != 8) continue;
    const auto own = a.by_source.find(cells[0]);
    if (own == a.by_source.end() || own->second.time.count < kFewest) continue;
    compare(cells[0], cells[5], own->second.time.count, own->second.time.mean_absolute);
  }
  return failures;
}

} // namespace foretrain::validation
