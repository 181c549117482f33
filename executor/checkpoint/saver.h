#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"
#include "executor/checkpoint/state.h"

namespace foretrain {

/// Makes a rank's checkpoints. All ranks of a run call the same functions in the same order: they agree after every
/// part of the work, so that a checkpoint is complete or not there, and all fail when one fails.
class CheckpointSaver {
public:
  /// `plan`, `program`, `communicator` and `executor` outlive it. `say`: gets a line of the run's records per
  /// checkpoint.
  CheckpointSaver(CheckpointOptions options, const Plan& plan, const Program& program, int rank,
                  Communicator& communicator, Rank& executor, std::function<Result<void>(const Json&)> say);
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Between two steps. `state.steps` are done; `last`: no further one follows, and what is being written is waited
  /// for. Errors: a full disk here or on another rank, a rank that is gone.
  [[nodiscard]] Result<void> after_step(const CheckpointState& state, bool last);

private:
  enum class Writing { no, going_on, done, failed };
  struct Pending {
    CheckpointState state;
    std::vector<std::vector<char>> copies; ///< of the state, when it is written in the background
    RankState written;
    std::thread thread;
    std::atomic<Writing> writing{Writing::no};
    std::optional<Error> error;
    std::int64_t bytes = 0;
    double stalled = 0; ///< seconds that training waited
    double wrote = 0;   ///< seconds that writing took
  };

  [[nodiscard]] Result<void> start(const CheckpointState& state);
  [[nodiscard]] Result<void> look(bool wait);
  [[nodiscard]] Result<void> commit();
  void write(Pending& pending) const;
  [[nodiscard]] int worst(int value);
  [[nodiscard]] Result<void> agree(Result<void> mine, const char* what);

  CheckpointOptions options_;
  const Plan& plan_;
  const Program& program_;
  int rank_;
  Communicator& communicator_;
  Rank& executor_;
  std::function<Result<void>(const Json&)> say_;
  int steps_ = 0; ///< of the checkpoint that is being made
  std::unique_ptr<Pending> pending_;
};

} // namespace foretrain
