#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/base/text.h"
#include "core/spec/names.h"
#include "planner/cli/commands/explain_row.h"
#include "planner/cli/inputs.h"
#include "planner/cli/validation.h"
#include "planner/validate/errors.h"
#include "planner/validate/terms.h"

namespace foretrain::cli {
namespace {

using validation::Term;
using validation::ValidatedRow;

constexpr double kTelling = 0.3; // correlations below say little

std::string text_of(const ValidatedRow& row, const std::vector<Term>& terms, const validation::ErrorSummary& source) {
  const double missing = *row.measured_seconds - *row.predicted_seconds;
  std::string text = fmt::format(
      "{} ({})\n{} on {} × {} · {} tokens · batch {} · {}\n  measured  {}\n  predicted {}  ({:+.1f} %)\n\n", row.row_id,
      row.source, row.features.model, row.features.devices, row.features.device, row.features.sequence_length,
      row.features.global_batch, row.features.precision, pretty(Seconds(*row.measured_seconds)),
      pretty(Seconds(*row.predicted_seconds)), *validation::time_error_percent(row));
  text += fmt::format("  {:<10} {:>10} {:>7}   error with its share over the source's {} rows\n", "part", "predicted",
                      "share", source.count);
  for (const Term& term : terms)
    text += fmt::format("  {:<10} {:>10} {:>5.1f} %   r {:+.2f}, {:+.2f} per step of it\n", id_of(term.part),
                        pretty(Seconds(term.seconds)), 100 * term.share, term.correlation, term.slope);
  text += fmt::format("\nthe source's rows: {:.1f} % absolute, {:+.1f} % signed\n", source.mean_absolute,
                      source.mean_signed);
  const auto telling = std::find_if(terms.begin(), terms.end(), [&](const Term& term) {
    return std::abs(term.correlation) >= kTelling && (term.slope > 0) == (missing > 0);
  });
  if (telling == terms.end())
    text += "no part's share goes with the error: a term that is missing, or one that all rows share\n";
  else
    text +=
        fmt::format("the residual of {} {} points to {}: it would be explained by {} times what is predicted for it\n",
                    missing < 0 ? "-" : "+", pretty(Seconds(std::abs(missing))), id_of(telling->part),
                    fmt::format("{:.2f}", std::max(0.0, 1 + telling->slope)));
  for (const std::string& note : row.notes) text += "assumed: " + note + "\n";
  return text;
}

Json json_of(const ValidatedRow& row, const std::vector<Term>& terms, const validation::ErrorSummary& source) {
  Json json = {{"row_id", row.row_id},
               {"source", row.source},
               {"measured_step_time_s", *row.measured_seconds},
               {"step_time_s", *row.predicted_seconds},
               {"error_percent", *validation::time_error_percent(row)}};
  json["time"] = Json::array();
  for (const Term& term : terms)
    json["time"].push_back({{"part", std::string(id_of(term.part))},
                            {"plan_s", term.seconds},
                            {"share", term.share},
                            {"correlation", term.correlation},
                            {"slope", term.slope}});
  json["source_error"] = {{"rows", source.count},
                          {"mean_absolute_percent", source.mean_absolute},
                          {"mean_signed_percent", source.mean_signed}};
  json["notes"] = row.notes;
  return json;
}

Result<int> explain(const Context& context, const ExplainOptions& options) {
  const std::size_t colon = options.against.rfind(':');
  const std::string file = options.against.substr(0, colon);
  const std::string id = options.against.substr(colon + 1);
  FORETRAIN_TRY(const auto assumptions, read_assumptions(context.data, std::filesystem::path(file).stem().string()));
  FORETRAIN_TRY(const MeasurementFile measured, read_measurements(file, assumptions));
  if (measured.skipped) return fail(file, *measured.skipped);
  FORETRAIN_TRY(const auto rows,
                validate_rows(context, file, measured.rows, Engine::replay, jobs_or_cores(options.jobs)));
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const ValidatedRow& r) { return r.row_id == id; });
  if (row == rows.end()) return fail("--against", "no row '" + id + "' in " + file);
  if (row->skipped) return fail("--against", "row '" + id + "' is not compared: " + *row->skipped);
  if (!validation::time_error_percent(*row))
    return fail("--against", "row '" + id + "' has no step time to compare" +
                                 (row->rule.empty() ? "" : ": refused by " + row->rule));
  validation::Rows same;
  for (const ValidatedRow& other : rows)
    if (other.source == row->source) same.push_back(&other);
  const validation::ErrorSummary source = validation::summarise_rows(same).time;
  const std::vector<Term> terms = validation::terms_of(*row, same);
  return print_and(options.json ? json_of(*row, terms, source).dump(2) + "\n" : text_of(*row, terms, source), kDone);
}

} // namespace

bool names_a_row(const std::string& against) {
  return against.rfind(".csv:") != std::string::npos;
}

int explain_row(const Context& context, const ExplainOptions& options) {
  const auto code = explain(context, options);
  return code ? *code : complain(code.error());
}

} // namespace foretrain::cli
