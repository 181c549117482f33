// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/plan_text.h"

#include <fmt/format.h>

#include "core/spec/io.h"
#include "gui/model/numbers.h"
#include "planner/explain.h"

namespace foretrain::gui {
namespace {

std::string here_document(const std::string& command, const std::string& document) {
  return command + " /dev/stdin <<'END'\n" + document + "\nEND\n";
}

std::string program(const Session& session) {
  const auto& path = session.environment().command;
  return path.empty() ? "foretrain" : shell_quoted(path.string());
}

Plan plan_of(const Session& session, int row) {
  const Study& study = session.results().study;
  return {study.model, study.cluster, study.job, session.rows()[static_cast<std::size_t>(row)].layout};
}

/// The best prediction that there is: a replay that was asked for, else that of the search.
const Prediction* prediction_of(const Row& row, const std::shared_ptr<const Detail>& detail) {
  if (row.prediction) return row.prediction.get();
  return detail && detail->prediction.step_time.value > 0 ? &detail->prediction : nullptr;
}

void add_comparison(Session& session, int row, std::vector<DetailLine>& lines) {
  const int other = session.reference_for(row);
  if (other < 0) return;
  const Row& a = session.rows()[static_cast<std::size_t>(row)];
  const Row& b = session.rows()[static_cast<std::size_t>(other)];
  const auto mine = session.detail(row);
  const auto theirs = session.detail(other);
  const char* name = other == session.baseline() ? "the baseline" : other == 0 ? "the best" : "the second";
  lines.push_back({fmt::format("Against {} (#{})", name, other + 1), "", ""});
  const auto change = [&](const char* what, double x, double y) {
    if (y != 0) lines.push_back({what, signed_percent((x / y - 1) * 100), ""});
  };
  change("step time", step_seconds(a), step_seconds(b));
  change("memory", memory_bytes(a), memory_bytes(b));
  const Prediction* p = prediction_of(a, mine);
  const Prediction* q = prediction_of(b, theirs);
  if (!p || !q) return;
  const Explanation explanation = explain(plan_of(session, row), *p, plan_of(session, other), *q);
  for (const std::string& text : explanation.layout_changes) lines.push_back({"", text, ""});
  int shown = 0;
  for (const Difference& difference : explanation.time) {
    const double seconds = difference.plan.value - difference.baseline.value;
    if (std::abs(seconds) < 0.001 * explanation.step.value || ++shown > 5) continue;
    lines.push_back({std::string(id_of(difference.part)), (seconds > 0 ? "+" : "") + short_seconds(seconds), ""});
  }
}

void add_prediction(const Prediction& prediction, std::vector<DetailLine>& lines) {
  lines.push_back({"Step time", "", ""});
  for (int part = 0; part < kTimeParts; ++part) {
    const double seconds = prediction.time[static_cast<std::size_t>(part)].value;
    if (seconds <= 0) continue;
    lines.push_back({std::string(id_of(static_cast<TimePart>(part))),
                     fmt::format("{} · {:.1f} %", short_seconds(seconds), seconds / prediction.step_time.value * 100),
                     "on the critical path"});
  }
  lines.push_back({"What it rests on", "", ""});
  lines.push_back({"engine", std::string(id_of(prediction.engine)), ""});
  lines.push_back({"evidence", std::string(id_of(prediction.evidence)), "the weakest of the figures in it"});
  lines.push_back({"80 % interval",
                   fmt::format("{} … {}", short_seconds(prediction.step_time_interval[0].value),
                               short_seconds(prediction.step_time_interval[1].value)),
                   "in four of five cases it is in here"});
  lines.push_back({"of the memory",
                   fmt::format("{} … {} GiB", short_number(double(prediction.memory_interval[0].value) / double(kGiB)),
                               short_number(double(prediction.memory_interval[1].value) / double(kGiB))),
                   ""});
  for (const std::string& note : prediction.notes) lines.push_back({"note", note, ""});
}

/// What the simulation on the network adds: how long transfers take once they share links.
void add_network(const Session& session, int row, const Detail& detail, std::vector<DetailLine>& lines) {
  const bool running = session.simulating() == row;
  if (!running && !detail.network && detail.network_problem.empty()) return;
  lines.push_back({"On the network (SimGrid)", "", ""});
  if (running) lines.push_back({"", "simulating every rank’s transfers … (Esc stops)", ""});
  if (!detail.network_problem.empty()) lines.push_back({"note", detail.network_problem, ""});
  if (!detail.network) return;
  const Prediction& found = detail.network->prediction;
  const double replayed = detail.prediction.step_time.value;
  lines.push_back({"step time", short_seconds(found.step_time.value), "with all links shared by all transfers"});
  if (replayed > 0)
    lines.push_back({"against the replay", signed_percent((found.step_time.value / replayed - 1) * 100),
                     "what sharing links costs"});
  for (const GroupLoad& group : detail.network->run.groups)
    if (group.undisturbed > 0)
      lines.push_back({group.name,
                       fmt::format("{} transfers, × {} as long", grouped(group.transfers),
                                   short_number(group.seconds / group.undisturbed)),
                       "than undisturbed"});
  int shown = 0;
  for (const LinkLoad& link : detail.network->run.links) {
    if (++shown > 3) break;
    lines.push_back({link.name, fmt::format("{}, {:.0f} % busy", short_bytes(link.bytes), link.utilisation * 100),
                     "bytes in the step; share of its capacity"});
  }
}

} // namespace

std::string shell_quoted(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                             "0123456789_-+./:=@,") == std::string::npos;
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string search_command(const Session& session) {
  std::string where = joined_expression(session.edits().chips);
  if (session.study() && !session.study()->where.empty() && !where.empty())
    where = "(" + session.study()->where + ") and " + where;
  std::string command = program(session) + " plan";
  if (!where.empty()) command += " --where " + shell_quoted(where);
  return here_document(command, session.edits().document.dump(2));
}

std::string plan_json(const Session& session, int row) {
  return to_json(plan_of(session, row)).dump(2);
}

std::string predict_command(const Session& session, int row) {
  return here_document(program(session) + " predict", plan_json(session, row));
}

std::vector<DetailLine> detail_lines(Session& session, int row) {
  std::vector<DetailLine> lines;
  if (row < 0 || row >= static_cast<int>(session.rows().size())) return lines;
  const Row& entry = session.rows()[static_cast<std::size_t>(row)];
  const auto detail = session.detail(row);
  const Prediction* prediction = prediction_of(entry, detail);
  lines.push_back({fmt::format("#{}", row + 1), "", ""});
  lines.push_back({"layout", describe(entry.layout), ""});
  if (const std::string note = session.note(row); !note.empty()) lines.push_back({"note", "“" + note + "”", ""});
  for (const char* id : {"step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_percent", "memory_gib",
                         "headroom_gib", "cost_per_mtoken"}) {
    const Field* field = find_field(id);
    if (!field) continue;
    FieldRow view = field_row(session.results().study, entry);
    view.prediction = prediction;
    const FieldValue value = field->get(view);
    if (std::holds_alternative<std::monostate>(value)) continue;
    lines.push_back({title_with_unit(*field), short_value(*field, value),
                     std::string(field->help) + ": " + full_value(*field, value)});
  }
  add_comparison(session, row, lines);
  if (prediction)
    add_prediction(*prediction, lines);
  else
    lines.push_back({"", detail ? detail->problem : "replaying op by op …", ""});
  if (detail) add_network(session, row, *detail, lines);
  return lines;
}

std::string rows_csv(const Session& session, const std::vector<std::string>& columns) {
  std::vector<const Field*> list;
  for (const std::string& id : columns)
    if (const Field* field = find_field(id)) list.push_back(field);
  std::string csv = "rank";
  for (const Field* field : list) csv += "," + std::string(field->id);
  csv += "\n";
  for (const int row : session.shown()) {
    csv += std::to_string(row + 1);
    for (const Field* field : list)
      csv += "," + csv_value(value_of(*field, session.results().study, session.rows()[static_cast<std::size_t>(row)]));
    csv += "\n";
  }
  return csv;
}

std::string counts_line(const Session& session) {
  const Results& results = session.results();
  if (session.searching()) {
    const Progress& progress = session.progress();
    std::string line = progress.phase.empty() ? "starting" : progress.phase;
    if (progress.total > 0)
      line += fmt::format(": {} of {} layouts, {} fit", grouped(progress.done), grouped(progress.total),
                          grouped(progress.fitting));
    if (const auto left = session.remaining_s(); left && progress.phase == "search")
      line += fmt::format(", about {} left", short_seconds(*left));
    return line;
  }
  if (results.rows.empty() && results.enumerated == 0) return "no search yet";
  std::int64_t rejected = 0;
  for (const auto& [rule, count] : results.rejected) rejected += count;
  std::string line =
      fmt::format("{} considered · {} rejected · {} fit · {} of {} kept shown", grouped(results.enumerated),
                  grouped(rejected), grouped(results.fits), grouped(static_cast<std::int64_t>(session.shown().size())),
                  grouped(static_cast<std::int64_t>(results.rows.size())));
  if (!results.complete) line += " · incomplete";
  if (session.simulating() >= 0) line += fmt::format(" · simulating #{} on the network", session.simulating() + 1);
  return line;
}

} // namespace foretrain::gui
