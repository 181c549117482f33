#pragma once

#include <memory>
#include <optional>
#include <span>

#include "core/base/result.h"
#include "core/program/schedules/schedule.h"
#include "core/spec/calibration.h"
#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "core/spec/semantics.h"
#include "simulator/cost.h"

namespace foretrain {

/// What the search keeps of a layout: time and memory at slot granularity.
struct Evaluation {
  double step_seconds = 0;
  std::int64_t device_bytes = 0; ///< highest over the stages
  int worst_stage = 0;
  Evidence evidence = Evidence::datasheet; ///< worst of the costs in it
  double tflops_per_device = 0;            ///< model TFLOP/s, Megatron's count; 0: no formula
  double mfu_percent = 0;                  ///< the same against the dense peak; 0: not known
};

/// What a layout takes at least: never more than its evaluation says.
struct Floor {
  double step_seconds = 0;
  std::int64_t device_bytes = 0;
  int worst_stage = 0;
};

/// Evaluates layouts of one study. Blocks, stages and schedule orders are built once and shared between layouts and
/// threads; an object per thread (`Worker`) holds scratch memory. Equal layouts give equal results in any order.
class Evaluator {
public:
  /// Errors: a device figure that the job needs is unknown.
  [[nodiscard]] static Result<Evaluator> make(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job,
                                              const Semantics& semantics, const Calibration& calibration);
  ~Evaluator();
  Evaluator(Evaluator&&) noexcept;
  Evaluator& operator=(Evaluator&&) noexcept;

  class Worker {
  public:
    ~Worker();
    Worker(Worker&&) noexcept;
    /// Slot granularity, tens of microseconds. The layout must be legal (first_rejection finds nothing).
    [[nodiscard]] Evaluation evaluate(const Layout& layout);
    /// The layout under each of `choices` instead of its own recomputation: what they share is worked out once. Gives
    /// what the calls one by one would.
    void evaluate(const Layout& layout, std::span<const RecomputeChoice> choices, std::span<Evaluation> into);
    /// What an order by cost follows (core/program/slot_weights.h), worked out once per part of a layout that counts.
    [[nodiscard]] SlotWeights slot_weights(const Layout& layout);
    /// What a device holds at least, and on which stage: a bound that spares the evaluation. Microseconds.
    struct Least {
      Bytes bytes;
      int stage = 0;
    };
    /// Model state alone, of the first and the last stage.
    [[nodiscard]] Least least_state(const Layout& layout);
    /// Model state and the activations that the first stage holds, whatever is recomputed.
    [[nodiscard]] Least least_activations(const Layout& layout);
    /// What the layout takes at least under each of `choices`, from its blocks alone (docs/performance.md, "Floors").
    /// Microseconds each.
    void floors(const Layout& layout, std::span<const RecomputeChoice> choices, std::span<Floor> into);
    /// The same whatever is recomputed.
    [[nodiscard]] Floor floor(const Layout& layout);

  private:
    friend class Evaluator;
    struct Data;
    explicit Worker(std::unique_ptr<Data> data);
    std::unique_ptr<Data> data_;
  };
  [[nodiscard]] Worker worker() const;

  /// What replays and simulations need of the study.
  [[nodiscard]] const CostModel& cost() const;
  /// Time that a synchronous step waits for its slowest rank, beyond what any engine replays: the devices' spread times
  /// the expected largest of as many deviations (docs/formulas.md, "Stragglers").
  [[nodiscard]] double straggling(double compute_seconds) const;

  /// Full prediction at slot granularity (Engine::slots): time parts, memory per stage with parts, verdict, interval.
  [[nodiscard]] Prediction predict(const Layout& layout) const;

  /// Device memory that a plan may use: what the driver reports, else the marketed size. Absent: unknown, nothing is
  /// judged to fit.
  [[nodiscard]] std::optional<Bytes> capacity() const;

private:
  struct Shared;
  explicit Evaluator(std::shared_ptr<const Shared> shared);
  std::shared_ptr<const Shared> shared_;
};

} // namespace foretrain
