#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "core/base/result.h"
#include "executor/allocator.h"
#include "executor/communicator.h"
#include "executor/device.h"
#include "executor/optimizer.h"
#include "executor/record.h"
#include "executor/segments.h"

namespace foretrain {

[[nodiscard]] std::int64_t bytes_of(const at::Tensor& tensor);

struct RankOptions {
  std::uint64_t seed = 1;
  bool forced_routing = true; ///< experts by the token's place (all get equally many) instead of the router's choice
  OptimizerOptions optimizer;
  /// Called before the optimizer's op of a step, with gradients reduced and not yet clipped … may be empty.
  std::function<void(int step, const ParameterTable& parameters)> before_clip;
  /// Where this rank is, for another thread: step · 2^32 + number of the op in the step. May be null.
  std::atomic<std::int64_t>* progress = nullptr;
  /// Called before and after an op of a block, once its buffers are there and before any of them is freed; may be
  /// empty.
  std::function<void(const Op& op, bool begins)> around_op;
  /// `count` + 1 tokens of a sequence of the run, the first one 0; empty: synthetic ones. May throw.
  std::function<std::vector<std::int64_t>(std::int64_t sequence, std::int64_t count)> tokens;
  /// Highest bytes of the allocator since the last call; empty: not counted.
  std::function<std::int64_t()> take_peak;
  /// The same of what a device's allocator has from its driver; empty: nothing has.
  std::function<std::int64_t()> take_reserved;
};

/// One rank that interprets a Program: its weights, optimizer and buffers, and nothing that another rank could see.
/// Transfers are waited for at their place in the issue order, except those between stages, which are started and
/// waited for as the Program says. On a device that queues, waits are the device's: the host issues the whole step and
/// waits at its end (and where rows of experts are counted).
class Rank {
public:
  /// `plan`, `program`, `device` and `communicator` outlive the rank; `check_runnable` found nothing. `device`: entered
  /// by the calling thread, which is the one that steps.
  Rank(const Plan& plan, const Program& program, int rank, Device& device, Communicator& communicator,
       RankOptions options);

  /// One optimizer step; steps count from 0 (or from where a checkpoint was read) and must be asked for in order.
  /// Error: a peer is gone, named with the op.
  [[nodiscard]] Result<StepRecord> step(int index);

  [[nodiscard]] const ParameterTable& parameters() const { return parameters_; }
  /// Between steps: what a checkpoint keeps and brings back.
  [[nodiscard]] ParameterTable& parameters() { return parameters_; }
  [[nodiscard]] Optimizer& optimizer() { return optimizer_; }

private:
  using Key = std::tuple<bool, int, int>; ///< gradient?, chunk, micro-batch
  struct Moving {
    at::Tensor tensor;
    std::unique_ptr<Transfer> transfer; ///< null once waited for
  };

  void run(int instruction);
  void run_slot(int instruction);
  void run_step_op(const Op& op);
  void start_receive(const Instruction& instruction);
  void start_send(const Instruction& instruction);

  [[nodiscard]] bool runs_in(const ChunkOp& entry, const Instruction& slot) const;
  void run_block_op(const Op& op, BlockState& state);
  void run_between(const Instruction& slot, const Chunk& chunk, std::size_t entry);
  void free_between(const Instruction& slot, const Chunk& chunk, int position);
  void bind_borders(const Instruction& slot, std::vector<BlockState>& states, int position);
  void hand_on(const Instruction& slot, std::vector<BlockState>& states);
  [[nodiscard]] std::vector<BlockState>& states_of(const Instruction& slot);
  [[nodiscard]] SegmentContext& context_of(int micro_batch);

  void run_transfer(const Op& op, BlockState& state);
  void ring_exchange(const Op& op, const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to);
  void exchange_heads(const Op& op, const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to);
  void exchange_counts(const Op& op, BlockState& state);
  void exchange_rows(Group group, const at::Tensor& from, const std::vector<std::int64_t>& gives, at::Tensor& to,
                     const std::vector<std::int64_t>& takes);
  void exchange_to_all(Group group, const at::Tensor& from, at::Tensor& to, const std::vector<std::int64_t>& takes);
  void move_rows(const Op& op, BlockState& state, const std::vector<at::Tensor>& from, std::vector<at::Tensor>& to);
  void collective(const Op& op, at::Tensor& from, at::Tensor& to);
  void move_parameters(const Op& op, const std::vector<ParameterEntry*>& entries);
  void sum_replicated(const Op& op);
  void gradient_norm();

  [[nodiscard]] int tag(const Instruction& instruction, bool sends) const;
  [[nodiscard]] at::TensorOptions options_of(at::ScalarType type) const {
    return at::TensorOptions(type).device(device_.place());
  }
  void begin(OpPlace place);
  void finish();
  void read_times();
  void read_results();

  const Plan& plan_;
  const Program& program_;
  int rank_;
  const Role& role_;
  Device& device_;
  Communicator& communicator_;
  RankOptions options_;
  at::ScalarType type_;
  ParameterTable parameters_;
  AllocatorAccount host_; ///< of the optimizer, where its state is on the host
  Optimizer optimizer_;
  std::vector<std::vector<std::int64_t>> positions_; ///< of the tokens of each context-parallel rank
  at::Tensor turns_;                                 ///< cosines and sines of this rank's positions

  // State of the step in progress.
  struct OpMarks { ///< of an op: places of the device's clock, transfers that it issued
    int begin = 0;
    int end = 0;
    std::int64_t first_transfer = 0;
    std::int64_t end_transfer = 0;
  };
  int step_ = 0;
  StepRecord record_;
  std::vector<OpMarks> marks_;                                    ///< of the record's ops
  OpPlace place_;                                                 ///< of the op in progress
  OpMarks started_;                                               ///< the same
  std::int64_t moved_ = 0;                                        ///< bytes of the op in progress
  at::Tensor squares_;                                            ///< sum of squared gradients, then over the world
  at::Tensor norm_;                                               ///< on a device that queues: read after the step
  bool norm_taken_ = false;                                       ///< the next gradient_norm op clips
  std::map<std::pair<int, int>, std::vector<BlockState>> states_; ///< per chunk and micro-batch in flight
  std::map<Key, Moving> incoming_;
  std::map<Key, Moving> outgoing_;
  std::map<int, SegmentContext> contexts_;
  double loss_ = 0;
};

} // namespace foretrain
