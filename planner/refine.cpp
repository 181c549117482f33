#include "planner/refine.h"

namespace foretrain {

Result<void> refine(const Study&, const Semantics&, const Evaluator& evaluator, const SearchOptions& options, SearchResult& result) {
  for (const Candidate& kept : result.kept) {
    if (static_cast<int>(result.ranked.size()) == options.top) break;
    Candidate candidate = kept;
    candidate.prediction = evaluator.predict(candidate.layout);
    result.ranked.push_back(std::move(candidate));
  }
  return {};
}

Result<Prediction> predict_with(const Evaluator& evaluator, const Plan& plan, const Semantics&, Engine, const std::string&) {
  return evaluator.predict(plan.layout);
}

} // namespace foretrain
