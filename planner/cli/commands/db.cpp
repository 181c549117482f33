#include <algorithm>

#include <fmt/format.h>

#include "core/spec/io.h"
#include "db/store.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/describe_prediction.h"
#include "planner/cli/progress.h"
#include "planner/cli/table.h"
#include "planner/explain.h"

namespace foretrain::cli {
namespace {

constexpr int kListed = 100;

Json summary_json(const StudySummary& s) {
  Json json = {{"id", s.id.value},
               {"digest", s.digest},
               {"model", s.model},
               {"cluster", s.cluster},
               {"sequence_length", s.sequence_length},
               {"global_batch", s.global_batch},
               {"semantics", s.semantics},
               {"created_at", s.created_at},
               {"program_version", s.program_version},
               {"complete", s.complete},
               {"elapsed_s", s.elapsed ? Json(s.elapsed->value) : Json()},
               {"candidates", s.candidates}};
  json["space"] = {{"enumerated", s.counts.enumerated},
                   {"legal", s.counts.legal},
                   {"evaluated", s.counts.evaluated},
                   {"fits", s.counts.fits}};
  return json;
}

Json candidates_json(const std::vector<StoredCandidate>& list) {
  Json json = Json::array();
  for (const StoredCandidate& candidate : list)
    json.push_back({{"id", candidate.id.value},
                    {"pareto", candidate.pareto},
                    {"semantics", candidate.best.key.semantics},
                    {"calibration", candidate.best.key.calibration},
                    {"plan", to_json(candidate.plan)},
                    {"prediction", to_json(candidate.best.prediction)}});
  return json;
}

std::string candidates_text(const std::vector<StoredCandidate>& list, int width) {
  if (list.empty()) return "no layouts are kept\n";
  std::vector<FieldRow> rows;
  for (const StoredCandidate& c : list)
    rows.push_back({c.plan.job, c.plan.cluster, c.plan.layout, nullptr, &c.best.prediction});
  const LayoutTable table = layout_table(rows, width);
  const std::string notes = layout_table_notes(table, width);
  return table.text + (notes.empty() ? "" : "\n" + notes);
}

/// The study that was asked for, else the newest.
Result<StudySummary> study_in(const Store& store, const DbOptions& options) {
  if (options.study) return store.summary(StudyId{*options.study});
  FORETRAIN_TRY(const auto newest, store.studies(1));
  if (newest.empty()) return fail(options.file, "holds no study", "foretrain plan … --db " + options.file);
  return newest.front();
}

struct Answer {
  std::string text;
  Json json;
};

Result<Answer> list_studies(const Store& store) {
  FORETRAIN_TRY(const auto studies, store.studies(kListed));
  std::vector<std::vector<std::string>> rows = {
      {"id", "model", "cluster", "tokens", "batch", "semantics", "fits", "kept", "when", "state"}};
  Answer answer{"", Json::array()};
  for (const StudySummary& s : studies) {
    rows.push_back({std::to_string(s.id.value), s.model, s.cluster, with_commas(s.sequence_length),
                    with_commas(s.global_batch), s.semantics, with_commas(s.counts.fits), with_commas(s.candidates),
                    s.created_at, s.complete ? "done" : "not finished"});
    answer.json.push_back(summary_json(s));
  }
  answer.text = studies.empty() ? "no studies\n" : text_table(rows);
  answer.json = Json{{"studies", std::move(answer.json)}};
  return answer;
}

Result<Answer> list_runs(const Store& store) {
  FORETRAIN_TRY(const auto runs, store.runs(kListed));
  std::vector<std::vector<std::string>> rows = {{"id", "model", "cluster", "launcher", "steps", "state", "when"}};
  Json list = Json::array();
  for (const RunSummary& run : runs) {
    rows.push_back({std::to_string(run.id.value), run.model, run.cluster, run.launcher, std::to_string(run.steps),
                    std::string(id_of(run.status)), run.created_at});
    list.push_back({{"id", run.id.value},
                    {"model", run.model},
                    {"cluster", run.cluster},
                    {"launcher", run.launcher},
                    {"steps", run.steps},
                    {"status", std::string(id_of(run.status))},
                    {"created_at", run.created_at},
                    {"message", run.message}});
  }
  return Answer{runs.empty() ? "no runs\n" : text_table(rows), Json{{"runs", std::move(list)}}};
}

Result<Answer> show_study(const Store& store, const StudySummary& summary) {
  FORETRAIN_TRY(const Study study, store.study(summary.id));
  FORETRAIN_TRY(const auto rejected, store.rejection_counts(summary.id));
  Answer answer;
  answer.text = fmt::format("study {} of {} by foretrain {}: {}\n", summary.id.value, summary.created_at,
                            summary.program_version, summary.complete ? "done" : "not finished");
  answer.text += job_line(study.model, study.cluster, study.job) + "\n";
  if (!study.where.empty()) answer.text += fmt::format("where {}\n", study.where);
  answer.text += fmt::format("by {}\n{} layouts, {} legal, {} evaluated, {} fit; {} kept\n", id_of(study.objective),
                             with_commas(summary.counts.enumerated), with_commas(summary.counts.legal),
                             with_commas(summary.counts.evaluated), with_commas(summary.counts.fits),
                             with_commas(summary.candidates));
  answer.json = summary_json(summary);
  answer.json["study"] = to_json(study);
  answer.json["rejected"] = Json::object();
  for (const auto& [rule, count] : rejected) {
    answer.text += fmt::format("  {} rejected by {}\n", with_commas(count), rule);
    answer.json["rejected"][rule] = count;
  }
  return answer;
}

Result<Answer> best_of(const Store& store, const StudySummary& summary, const DbOptions& options, int width) {
  FORETRAIN_TRY(const Study study, store.study(summary.id));
  Objective objective = study.objective;
  if (!options.objective.empty()) {
    FORETRAIN_TRY(objective, objective_from(options.objective, "--objective"));
  }
  FORETRAIN_TRY(const auto list, store.ranked(summary.id, objective, options.top));
  Answer answer{candidates_text(list, width), summary_json(summary)};
  answer.json["ranked"] = candidates_json(list);
  return answer;
}

Result<Answer> near_misses_of(const Store& store, const StudySummary& summary) {
  FORETRAIN_TRY(const Study study, store.study(summary.id));
  FORETRAIN_TRY(const auto misses, store.near_misses(summary.id));
  Answer answer{"", summary_json(summary)};
  answer.json["near_misses"] = Json::array();
  for (const StoredNearMiss& miss : misses) {
    answer.text += describe(miss.layout) + "\n" + rejection_line(miss.rejection) + "\n";
    answer.json["near_misses"].push_back({{"plan", to_json(Plan{study.model, study.cluster, study.job, miss.layout})},
                                          {"rejection", to_json(miss.rejection)}});
  }
  if (misses.empty()) answer.text = "no near misses are kept\n";
  return answer;
}

Result<Answer> answer_to(const Context& context, const DbOptions& options) {
  if (options.top < 1) return fail("--top", fmt::format("{} is not a number of layouts", options.top), "at least 1");
  FORETRAIN_TRY(const Store store, Store::open(options.file, OpenMode::read, context.data));
  if (options.action == "list") return list_studies(store);
  if (options.action == "runs") return list_runs(store);
  FORETRAIN_TRY(const StudySummary summary, study_in(store, options));
  if (options.action == "show") return show_study(store, summary);
  if (options.action == "best") return best_of(store, summary, options, context.width);
  if (options.action == "misses") return near_misses_of(store, summary);
  FORETRAIN_TRY(const auto front, store.pareto(summary.id));
  Answer answer{candidates_text(front, context.width), summary_json(summary)};
  answer.json["pareto"] = candidates_json(front);
  return answer;
}

} // namespace

int run_db(const Context& context, const DbOptions& options) {
  const auto answer = answer_to(context, options);
  if (!answer) return complain(answer.error());
  return print_and(options.json ? answer->json.dump(2) + "\n" : answer->text, kDone);
}

} // namespace foretrain::cli
