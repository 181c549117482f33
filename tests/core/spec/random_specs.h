#pragma once

#include <random>

#include "core/spec/plan.h"
#include "core/spec/semantics.h"

/// Specs of every shape that a reader accepts, in the normal form in which they are read, for property tests.
namespace foretrain {

using Random = std::mt19937_64;

[[nodiscard]] ModelSpec random_model(Random& random);
[[nodiscard]] DeviceSpec random_device(Random& random);
[[nodiscard]] ClusterSpec random_cluster(Random& random);
[[nodiscard]] JobSpec random_job(Random& random);
[[nodiscard]] Layout random_layout(Random& random);
[[nodiscard]] Semantics random_semantics(Random& random);
[[nodiscard]] SearchSpace random_space(Random& random);

} // namespace foretrain
