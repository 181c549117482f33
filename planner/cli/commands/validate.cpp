#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/json.h"
#include "core/spec/io.h"
#include "core/spec/names.h"
#include "planner/cli/commands/validate_files.h"
#include "planner/cli/inputs.h"
#include "planner/cli/table.h"
#include "planner/cli/validation.h"
#include "planner/validate/accuracy.h"
#include "planner/validate/plots.h"
#include "planner/validate/targets.h"

namespace foretrain::cli {

using validation::ErrorSummary;
using validation::ValidatedRow;
using validation::ValidationSummary;

namespace {

struct SkippedFile {
  std::string file;
  std::string reason;
};

struct Validation {
  std::vector<ValidatedRow> rows;
  std::vector<SkippedFile> skipped;
  bool complete = true;
};

Result<Validation> validate_files(const Context& context, const ValidateOptions& options, Engine engine) {
  Validation all;
  for (const std::string& file : options.files) {
    FORETRAIN_TRY(const auto assumptions, read_assumptions(context.data, std::filesystem::path(file).stem().string()));
    FORETRAIN_TRY(const MeasurementFile measured, read_measurements(file, assumptions));
    if (measured.skipped) {
      all.skipped.push_back({file, *measured.skipped});
      continue;
    }
    FORETRAIN_TRY(auto rows, validate_rows(context, file, measured.rows, engine, jobs_or_cores(options.jobs)));
    all.complete = all.complete && rows.size() == measured.rows.size();
    for (ValidatedRow& row : rows) all.rows.push_back(std::move(row));
  }
  return all;
}

Json number(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json row_json(const ValidatedRow& row) {
  Json json = {{"file", row.file}, {"source", row.source}, {"row_id", row.row_id}, {"eligible", row.eligible}};
  if (row.skipped) {
    json["skipped"] = *row.skipped;
    return json;
  }
  json["predicted"] = {{"step_time_s", number(row.predicted_seconds)},
                       {"memory_bytes", number(row.predicted_bytes)},
                       {"memory_kind", row.predicted_kind}};
  json["measured"] = {{"step_time_s", number(row.measured_seconds)},
                      {"memory_bytes", number(row.measured_bytes)},
                      {"memory_kind", row.measured_kind},
                      {"outcome", row.outcome}};
  json["error_percent"] = {{"step_time", number(time_error_percent(row))},
                           {"memory", number(memory_error_percent(row))}};
  json["verdict"] = std::string(id_of(row.verdict));
  json["evidence"] = std::string(id_of(row.evidence));
  json["interval"] = {{"step_time_s", row.time_interval}};
  json["device"] = row.features.device;
  json["held_out"] = row.held_out;
  json["time"] = Json::object();
  for (int p = 0; p < kTimeParts; ++p)
    json["time"][std::string(id_of(static_cast<TimePart>(p)))] = row.time[static_cast<std::size_t>(p)].value;
  json["skipped"] = Json();
  json["notes"] = row.notes;
  json["memory_open"] = row.memory_open;
  json["unsteady"] = row.unsteady;
  return json;
}

Json errors_json(const ErrorSummary& errors) {
  if (errors.count == 0) return {{"count", 0}};
  return {{"count", errors.count},
          {"mean_absolute_percent", errors.mean_absolute},
          {"mean_signed_percent", errors.mean_signed},
          {"p90_absolute_percent", errors.p90_absolute}};
}

Json summary_json(const ValidationSummary& s) {
  Json json = {{"rows", s.rows}, {"eligible", s.eligible}, {"predicted", s.predicted}, {"compared", s.compared}};
  json["unpredicted"] = Json::object();
  for (const auto& [reason, count] : s.unpredicted) json["unpredicted"][reason] = count;
  json["step_time"] = errors_json(s.time);
  json["memory"] = errors_json(s.memory);
  json["out_of_memory"] = {{"measured", s.ran_out_of_memory},
                           {"foreseen", s.foreseen},
                           {"wrongly_predicted", s.wrongly_out_of_memory},
                           {"open", s.open_out_of_memory}};
  json["called_illegal"] = s.called_illegal;
  json["skipped"] = Json::object();
  for (const auto& [reason, count] : s.skipped) json["skipped"][reason] = count;
  return json;
}

std::vector<std::string> summary_row(const std::string& name, const ValidationSummary& s) {
  const auto percent = [](const ErrorSummary& e, double value, const char* format) {
    return e.count == 0 ? std::string("-") : fmt::format(fmt::runtime(format), value);
  };
  return {name,
          std::to_string(s.rows),
          std::to_string(s.compared),
          std::to_string(s.time.count),
          percent(s.time, s.time.mean_absolute, "{:.1f}"),
          percent(s.time, s.time.mean_signed, "{:+.1f}"),
          percent(s.time, s.time.p90_absolute, "{:.1f}"),
          std::to_string(s.memory.count),
          percent(s.memory, s.memory.mean_absolute, "{:.1f}"),
          percent(s.memory, s.memory.mean_signed, "{:+.1f}"),
          percent(s.memory, s.memory.p90_absolute, "{:.1f}")};
}

std::string validation_text(const Validation& validation, const validation::Accuracy& accuracy) {
  std::vector<std::vector<std::string>> table = {{"source", "rows", "compared", "time", "mean |%|", "mean %", "p90 |%|",
                                                  "memory", "mean |%|", "mean %", "p90 |%|"}};
  for (const auto& [source, summary] : accuracy.by_source) table.push_back(summary_row(source.substr(0, 40), summary));
  table.push_back(summary_row("held-out", accuracy.held_out.summary));
  const ValidationSummary& all = accuracy.all.summary;
  table.push_back(summary_row("all", all));
  std::string text = text_table(table);
  text += fmt::format(
      "\n{} runs ended out of memory, {} of them foreseen; {} that ran are predicted not to fit, and {} "
      "whose source leaves recomputation or offload open; {} are refused by a rule\n",
      all.ran_out_of_memory, all.foreseen, all.wrongly_out_of_memory, all.open_out_of_memory, all.called_illegal);
  text +=
      fmt::format("step time, mean over {} sources: {:.1f} % absolute, {:+.1f} % signed\n",
                  accuracy.all.sources.sources, accuracy.all.sources.mean_absolute, accuracy.all.sources.mean_signed);
  const auto baseline = [&](const char* name, const ErrorSummary& errors) {
    if (errors.count > 0)
      text += fmt::format("{}: {:.1f} % absolute over {} rows\n", name, errors.mean_absolute, errors.count);
  };
  baseline("one utilisation per device", accuracy.all.baselines.by_utilisation);
  baseline("nearest row of another group", accuracy.all.baselines.by_nearest);
  const validation::RankingSummary ranking = validation::summarise_groups(accuracy.groups);
  if (ranking.groups > 0)
    text += fmt::format("{} ranked groups: Spearman {:.3f}, regret {:.1f} % in the mean, {:.1f} % at worst\n",
                        ranking.groups, ranking.mean_spearman, ranking.mean_regret, ranking.worst_regret);
  text += fmt::format("{} fitted constants\n", accuracy.constants.size());
  if (!all.skipped.empty()) text += "\nNot compared\n";
  std::vector<std::pair<std::string, int>> reasons(all.skipped.begin(), all.skipped.end());
  std::stable_sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [reason, count] : reasons) text += fmt::format("  {:>6}  {}\n", count, reason);
  for (const SkippedFile& file : validation.skipped) text += fmt::format("{}: {}\n", file.file, file.reason);
  if (!validation.complete) text += "stopped early\n";
  return text;
}

Json coverage_json(const std::map<std::string, validation::Coverage>& coverage) {
  Json json = Json::object();
  for (const auto& [level, c] : coverage)
    json[level] = {{"rows", c.rows}, {"covered", c.covered}, {"mean_width", c.mean_width}};
  return json;
}

Json set_json(const validation::AccuracyOf& of) {
  Json json = summary_json(of.summary);
  json["over_sources"] = {{"sources", of.sources.sources},
                          {"mean_absolute_percent", of.sources.mean_absolute},
                          {"mean_signed_percent", of.sources.mean_signed}};
  json["baselines"] = {{"one_utilisation", errors_json(of.baselines.by_utilisation)},
                       {"nearest_row", errors_json(of.baselines.by_nearest)}};
  json["intervals"] = {{"step_time", coverage_json(of.time_coverage)}, {"memory", coverage_json(of.memory_coverage)}};
  return json;
}

Json groups_json(const std::vector<validation::RankedGroup>& groups) {
  Json json = Json::array();
  for (const validation::RankedGroup& group : groups)
    json.push_back({{"group", group.name},
                    {"rows", group.rows},
                    {"spearman", group.spearman},
                    {"regret_percent", group.regret_percent},
                    {"false_fits_on_top", group.false_fits_on_top}});
  return json;
}

Json validation_json(const Validation& validation, const validation::Accuracy& accuracy) {
  Json json;
  json["rows"] = Json::array();
  for (const ValidatedRow& row : validation.rows) json["rows"].push_back(row_json(row));
  json["summary"] = {{"overall", set_json(accuracy.all)}, {"held_out", set_json(accuracy.held_out)}};
  json["summary"]["sources"] = Json::object();
  for (const auto& [source, summary] : accuracy.by_source) json["summary"]["sources"][source] = summary_json(summary);
  json["groups"] = groups_json(accuracy.groups);
  json["targets"] = Json::array();
  for (const validation::TargetLine& line : validation::target_lines(validation.rows, accuracy))
    json["targets"].push_back({{"what", line.what},
                               {"target", line.target},
                               {"rows", line.rows},
                               {"reached", line.reached},
                               {"held_out", line.held_out},
                               {"met", line.met}});
  json["constants"] = Json::array();
  for (const validation::FittedConstant& constant : accuracy.constants)
    json["constants"].push_back({{"owner", constant.owner}, {"key", constant.key}, {"value", constant.value}});
  json["skipped_files"] = Json::array();
  for (const SkippedFile& file : validation.skipped)
    json["skipped_files"].push_back({{"file", file.file}, {"reason", file.reason}});
  json["complete"] = validation.complete;
  return json;
}

Result<void> write_plots(const std::string& folder, const Validation& validation,
                         const validation::Accuracy& accuracy) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) return fail("--plot", "'" + folder + "': " + code.message());
  for (const validation::Plot& plot : validation::plots_of(validation::all_of(validation.rows), accuracy.groups))
    if (auto done = write_text_file(std::filesystem::path(folder) / (plot.name + ".svg"), plot.svg); !done)
      return tl::unexpected<Error>(std::move(done).error());
  return {};
}

Result<void> write_page(const std::string& file, const std::vector<ValidatedRow>& rows,
                        const validation::Accuracy& accuracy) {
  std::string remarks = "# Accuracy\n\n";
  std::error_code code;
  if (std::filesystem::exists(file, code)) {
    FORETRAIN_TRY(const std::string page, read_text_file(file));
    remarks = validation::remarks_of(page);
  }
  return write_text_file(file, validation::accuracy_page(rows, accuracy, remarks));
}

/// The files that were asked for beside the result.
Result<void> write_files(const ValidateFiles& files, const Validation& validation,
                         const validation::Accuracy& accuracy) {
  if (!files.plots.empty()) {
    if (auto done = write_plots(files.plots, validation, accuracy); !done)
      return tl::unexpected<Error>(std::move(done).error());
  }
  if (!files.page.empty()) {
    if (auto done = write_page(files.page, validation.rows, accuracy); !done)
      return tl::unexpected<Error>(std::move(done).error());
  }
  if (!files.intervals.empty()) {
    const Intervals intervals = validation::fit_intervals(validation::all_of(validation.rows));
    if (auto done = write_text_file(files.intervals, to_json(intervals).dump(2) + "\n"); !done)
      return tl::unexpected<Error>(std::move(done).error());
  }
  return {};
}

/// Says on stderr what got worse; whether something did.
Result<bool> is_worse(const std::string& file, const validation::Accuracy& accuracy) {
  FORETRAIN_TRY(const std::string page, read_text_file(file));
  const std::vector<std::string> failures = validation::worse_than(page, accuracy);
  for (const std::string& failure : failures) remark(failure);
  return !failures.empty();
}

Result<int> validate(const Context& context, const ValidateOptions& options, const ValidateFiles& files) {
  if (const auto jobs = check_jobs(options.jobs); !jobs) return tl::unexpected<Error>(jobs.error());
  FORETRAIN_TRY(const Engine engine, engine_of(context, options.engine));
  FORETRAIN_TRY(auto constants, validation::read_fitted_constants(context.data.root));
  FORETRAIN_TRY(const Validation all, validate_files(context, options, engine));
  if (all.skipped.size() == options.files.size())
    return fail(all.skipped.front().file, all.skipped.front().reason, "data/measured/megatron_ci.csv is one");
  validation::Accuracy accuracy = validation::accuracy_of(all.rows, std::move(constants));
  FORETRAIN_TRY(accuracy.collectives, validation::judge_collectives(context.data));
  if (auto done = write_files(files, all, accuracy); !done) return tl::unexpected<Error>(std::move(done).error());
  int code = all.complete ? kDone : kInterrupted;
  if (!files.check.empty()) {
    FORETRAIN_TRY(const bool worse, is_worse(files.check, accuracy));
    if (worse) code = kBadInput;
  }
  return print_and(options.json ? validation_json(all, accuracy).dump(2) + "\n" : validation_text(all, accuracy), code);
}

} // namespace

int run_validate(const Context& context, const ValidateOptions& options, const ValidateFiles& files) {
  const auto code = validate(context, options, files);
  return code ? *code : complain(code.error());
}

int run_validate(const Context& context, const ValidateOptions& options) {
  return run_validate(context, options, {});
}

} // namespace foretrain::cli
