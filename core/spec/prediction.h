#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"

namespace foretrain {

/// What a duration rests on, best first. A sum is as good as its worst part.
enum class Evidence {
  measured,     ///< this device, this shape
  interpolated, ///< this device, between measured shapes
  fitted,       ///< a formula fitted to this device
  datasheet,    ///< peak figures and a family's efficiency
};

/// Parts of device memory. The names are keys of the JSON contract.
enum class MemoryPart {
  parameters,
  gradients,
  master,
  moments,
  activations,
  logits,
  temporaries,
  buckets,
  communication,
  context,
  fragmentation,
};
inline constexpr int kMemoryParts = 11;
using MemoryParts = std::array<Bytes, kMemoryParts>;

/// Memory of one rank of a pipeline stage at its peak.
struct StageMemory {
  Bytes allocated;     ///< the framework allocator's peak
  Bytes reserved;      ///< what the allocator holds: allocated + fragmentation
  Bytes device;        ///< reserved + context and communication buffers: compared with the capacity
  MemoryParts parts{}; ///< adds up to `device`
  std::string peak_at; ///< where the peak is: "B micro-batch 0, head" …
  bool operator==(const StageMemory&) const = default;
};

/// Parts of the step on its critical path; they add up to the step.
enum class TimePart { compute, tp, cp, ep, pp, dp, bubble, optimizer, host, other };
inline constexpr int kTimeParts = 10;
using TimeParts = std::array<Seconds, kTimeParts>;

enum class Verdict { fits, oom, illegal };
enum class Engine { replay, simgrid, slots };

/// Why a layout cannot run. A result of a successful search, not an error.
struct Rejection {
  std::string rule;   ///< id of the rule
  std::string reason; ///< a sentence with both numbers that clash
  double needed = 0;
  double available = 0;
  std::vector<std::string> nearest; ///< changes that would be legal: "tp 4", "tp 7"
  bool operator==(const Rejection&) const = default;
};

struct Prediction {
  Verdict verdict = Verdict::fits;
  Engine engine = Engine::replay;
  Seconds step_time;
  double tokens_per_s_per_device = 0;
  double model_tflops_per_device = 0;
  double mfu_percent = 0;
  std::string flop_convention;
  TimeParts time{};
  std::vector<StageMemory> memory; ///< per stage
  std::vector<Rejection> rejections;
  Evidence evidence = Evidence::datasheet;
  std::array<Seconds, 2> step_time_interval{}; ///< 80 %
  std::array<Bytes, 2> memory_interval{};
  std::vector<std::string> notes;
  bool operator==(const Prediction&) const = default;
};

} // namespace foretrain
