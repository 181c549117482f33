#pragma once

#include <vector>

#include "core/base/result.h"
#include "core/spec/framework_kernels.h"
#include "planner/filter/filter.h"
#include "planner/search.h"

namespace foretrain {

/// Replays the best candidates op by op and, of those, simulates the first on the network; `result.ranked` is filled
/// and ordered anew. Candidates that `filter` does not admit are passed over. The number replayed grows until the next
/// candidate's slot time exceeds the best op time by more than the bound between the two.
[[nodiscard]] Result<void> refine(const Study& study, const Semantics& semantics, const Filter& filter,
                                  const Evaluator& evaluator, const SearchOptions& options, SearchResult& result);

/// A legal plan's prediction by one engine: slots, op replay, or the network simulation of a worker program.
[[nodiscard]] Result<Prediction> predict_with(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics,
                                              Engine engine, const std::string& worker, const std::string& data);

/// Devices up to which a search simulates its best on the network: time and memory of a simulation grow with them, half
/// a minute of CPU each here.
inline constexpr int kMostSimulated = 16'384;

/// The framework on this cluster's devices; without a data folder as it is.
[[nodiscard]] Result<OnDevice> adapted(const Semantics& framework, const Calibration& calibration,
                                       const ClusterSpec& cluster, const std::string& data);

/// One step on the simulated network; `stop` ends the worker, the error is then of kind cancelled.
[[nodiscard]] Result<Simulated> simulate_with(const Evaluator& evaluator, const Plan& plan, const Semantics& semantics,
                                              const std::string& worker, const std::string& data,
                                              const std::atomic<bool>* stop);

} // namespace foretrain
