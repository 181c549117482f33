#include <filesystem>

#include <fmt/format.h>

#include "core/spec/io.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/inputs.h"
#include "planner/cli/table.h"
#include "planner/cli/validation.h"

namespace foretrain::cli {
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

std::map<std::string, std::vector<const ValidatedRow*>> by_source(const std::vector<ValidatedRow>& rows) {
  std::map<std::string, std::vector<const ValidatedRow*>> groups;
  for (const ValidatedRow& row : rows) groups[row.source].push_back(&row);
  return groups;
}

std::vector<const ValidatedRow*> all_of(const std::vector<ValidatedRow>& rows) {
  std::vector<const ValidatedRow*> list;
  for (const ValidatedRow& row : rows) list.push_back(&row);
  return list;
}

Json number(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json row_json(const ValidatedRow& row) {
  Json json = {{"file", row.file}, {"source", row.source}, {"row_id", row.row_id}};
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
  json["skipped"] = Json();
  json["notes"] = row.notes;
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
  Json json = {{"rows", s.rows}, {"compared", s.compared}};
  json["step_time"] = errors_json(s.time);
  json["memory"] = errors_json(s.memory);
  json["out_of_memory"] = {
      {"measured", s.ran_out_of_memory}, {"foreseen", s.foreseen}, {"wrongly_predicted", s.wrongly_out_of_memory}};
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

std::string validation_text(const Validation& validation) {
  std::vector<std::vector<std::string>> table = {{"source", "rows", "compared", "time", "mean |%|", "mean %", "p90 |%|",
                                                  "memory", "mean |%|", "mean %", "p90 |%|"}};
  for (const auto& [source, rows] : by_source(validation.rows))
    table.push_back(summary_row(source.substr(0, 40), summarise_rows(rows)));
  const ValidationSummary all = summarise_rows(all_of(validation.rows));
  table.push_back(summary_row("all", all));
  std::string text = text_table(table);
  text += fmt::format("\n{} runs ended out of memory, {} of them foreseen; {} that ran are predicted not to fit, {} "
                      "are refused by a rule\n",
                      all.ran_out_of_memory, all.foreseen, all.wrongly_out_of_memory, all.called_illegal);
  if (!all.skipped.empty()) text += "\nNot compared\n";
  std::vector<std::pair<std::string, int>> reasons(all.skipped.begin(), all.skipped.end());
  std::stable_sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [reason, count] : reasons) text += fmt::format("  {:>6}  {}\n", count, reason);
  for (const SkippedFile& file : validation.skipped) text += fmt::format("{}: {}\n", file.file, file.reason);
  if (!validation.complete) text += "stopped early\n";
  return text;
}

Json validation_json(const Validation& validation) {
  Json json;
  json["rows"] = Json::array();
  for (const ValidatedRow& row : validation.rows) json["rows"].push_back(row_json(row));
  json["summary"] = {{"overall", summary_json(summarise_rows(all_of(validation.rows)))}};
  json["summary"]["sources"] = Json::object();
  for (const auto& [source, rows] : by_source(validation.rows))
    json["summary"]["sources"][source] = summary_json(summarise_rows(rows));
  json["skipped_files"] = Json::array();
  for (const SkippedFile& file : validation.skipped)
    json["skipped_files"].push_back({{"file", file.file}, {"reason", file.reason}});
  json["complete"] = validation.complete;
  return json;
}

} // namespace

int run_validate(const Context& context, const ValidateOptions& options) {
  const auto engine = engine_of(context, options.engine);
  if (!engine) return complain(engine.error());
  const auto validation = validate_files(context, options, *engine);
  if (!validation) return complain(validation.error());
  const int code = validation->complete ? kDone : kInterrupted;
  return print_and(options.json ? validation_json(*validation).dump(2) + "\n" : validation_text(*validation), code);
}

} // namespace foretrain::cli
