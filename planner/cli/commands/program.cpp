#include <fmt/format.h>

#include "core/program/check.h"
#include "core/program/lower.h"
#include "core/program/text.h"
#include "core/spec/io.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/describe_prediction.h"
#include "planner/cli/inputs.h"
#include "planner/rules/rule.h"

namespace foretrain::cli {
namespace {

int report_illegal(const std::vector<Rejection>& rejections, bool json) {
  if (json) {
    Json list = Json::array();
    for (const Rejection& rejection : rejections) list.push_back(to_json(rejection));
    return print_and(Json{{"rejections", std::move(list)}}.dump(2) + "\n", kNothingFits);
  }
  std::string text = "cannot run:\n";
  for (const Rejection& rejection : rejections) text += rejection_line(rejection) + "\n";
  return print_and(text, kNothingFits);
}

Json problems_json(const std::vector<Problem>& problems) {
  Json list = Json::array();
  for (const Problem& problem : problems)
    list.push_back({{"kind", std::string(id_of(problem.kind))},
                    {"stage", problem.stage},
                    {"instruction", problem.instruction},
                    {"text", problem.text}});
  return list;
}

std::string problems_text(const std::vector<Problem>& problems) {
  if (problems.empty()) return "\ncheck: pairing, order, groups, buffers: sound; no deadlock\n";
  std::string text = "\ncheck: not sound\n";
  for (const Problem& problem : problems)
    text += fmt::format("  {} stage {} instruction {}: {}\n", id_of(problem.kind), problem.stage, problem.instruction,
                        problem.text);
  return text;
}

} // namespace

int run_program(const Context& context, const ProgramOptions& options) {
  const auto loaded = load_plan(context, options.plan);
  if (!loaded) return complain(loaded.error());
  const Plan& plan = loaded->plan;
  if (options.role && (*options.role < 0 || *options.role >= plan.layout.pp))
    return complain({Error::Kind::input, fmt::format("there is no role {}", *options.role), "--role",
                     fmt::format("0 to {}: one per pipeline stage", plan.layout.pp - 1)});
  const RuleInput input{plan.model, plan.cluster, plan.job, loaded->semantics, plan.layout, device_count(plan.cluster)};
  if (const auto rejections = all_rejections(input); !rejections.empty())
    return report_illegal(rejections, options.json);
  const Program program = lower(plan, loaded->semantics);
  const std::vector<Problem> problems = check(program);
  const int code = problems.empty() ? kDone : kInternal;
  if (!options.json) return print_and(to_text(program, options.role) + problems_text(problems), code);
  Json json = to_json(program, options.role);
  json["problems"] = problems_json(problems);
  return print_and(json.dump(2) + "\n", code);
}

} // namespace foretrain::cli
