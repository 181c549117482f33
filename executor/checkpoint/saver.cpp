#include "executor/checkpoint/saver.h"

#include <chrono>
#include <cstring>
#include <exception>

#include <c10/core/GradMode.h>

namespace foretrain {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace

CheckpointSaver::CheckpointSaver(CheckpointOptions options, const Plan& plan, const Program& program, int rank,
                                 Communicator& communicator, Rank& executor,
                                 std::function<Result<void>(const Json&)> say)
    : options_(std::move(options)), plan_(plan), program_(program), rank_(rank), communicator_(communicator),
      executor_(executor), say_(std::move(say)) {}

CheckpointSaver::~CheckpointSaver() {
  if (pending_ && pending_->thread.joinable()) pending_->thread.join();
}

/// The highest of the ranks' values, on all of them. Throws when a rank is gone.
int CheckpointSaver::worst(int value) {
  if (program_.mesh.world() == 1) return value;
  at::Tensor number = at::full({1}, static_cast<double>(value), at::kFloat);
  communicator_.all_reduce(Group::world, number, Communicator::Reduction::maximum);
  return static_cast<int>(number.item<float>());
}

/// This rank's error, or that another rank has one: then what there is of the checkpoint goes.
Result<void> CheckpointSaver::agree(Result<void> mine, const char* what) {
  if (worst(mine ? 0 : 1) == 0) return {};
  if (rank_ == 0) drop_checkpoint(options_.folder, steps_);
  const std::string where = "rank " + std::to_string(rank_) + ", checkpoint after step " + std::to_string(steps_);
  if (!mine) return fail_environment(where, to_string(mine.error()), "the checkpoints made before are whole");
  return fail_environment(where, std::string("another rank could not ") + what);
}

Result<void> CheckpointSaver::after_step(const CheckpointState& state, bool last) {
  if (options_.folder.empty()) return {};
  const c10::NoGradGuard no_gradients;
  const bool due = last || (options_.every > 0 && state.steps % options_.every == 0);
  try {
    if (pending_)
      if (auto looked = look(due); !looked) return looked;
    if (!due) return {};
    if (auto started = start(state); !started) return started;
    return look(last || !options_.background);
  } catch (const std::exception& error) { // of the communicator
    return fail_environment("rank " + std::to_string(rank_) + ", checkpoint after step " + std::to_string(steps_),
                            error.what());
  }
}

/// Writes, or copies the state and leaves the writing to a thread.
Result<void> CheckpointSaver::start(const CheckpointState& state) {
  const double began = seconds();
  steps_ = state.steps;
  Result<void> made;
  if (rank_ == 0) made = begin_checkpoint(options_.folder, steps_);
  if (auto agreed = agree(std::move(made), "make the folder"); !agreed) return agreed;
  pending_ = std::make_unique<Pending>();
  Pending& pending = *pending_;
  pending.state = state;
  pending.written = owned_state(plan_, program_.mesh, rank_, executor_);
  for (const StatePart& part : pending.written.parts) pending.bytes += part.count * safetensors::width_of(part.type);
  pending.writing = Writing::going_on;
  if (options_.background) {
    for (std::size_t i = 0; i < pending.written.parts.size(); ++i) {
      StatePart& part = pending.written.parts[i];
      const char* from = static_cast<const char*>(part.data);
      std::vector<char>& copy = pending.copies.emplace_back(from, from + part.count * safetensors::width_of(part.type));
      part.data = copy.data();
    }
    pending.written.tensors.clear();
    pending.thread = std::thread([this, &pending] { write(pending); });
  } else {
    write(pending);
  }
  pending.stalled += seconds() - began;
  return {};
}

void CheckpointSaver::write(Pending& pending) const {
  const double began = seconds();
  const auto written =
      write_shard(unfinished_checkpoint(options_.folder, pending.state.steps), rank_, pending.written.parts);
  pending.wrote = seconds() - began;
  if (!written) pending.error = written.error();
  pending.writing = written ? Writing::done : Writing::failed;
}

/// Whether all ranks have written; then the checkpoint gets its name. `wait`: not before.
Result<void> CheckpointSaver::look(bool wait) {
  const double began = seconds();
  Pending& pending = *pending_;
  if (wait && pending.thread.joinable()) pending.thread.join();
  const Writing writing = pending.writing;
  const int state = worst(writing == Writing::failed ? 2 : writing == Writing::going_on ? 1 : 0);
  if (state == 1) { // one of them is still writing
    pending.stalled += seconds() - began;
    return {};
  }
  if (pending.thread.joinable()) pending.thread.join();
  Result<void> mine;
  if (pending.error) mine = tl::unexpected<Error>(*pending.error);
  if (auto agreed = agree(std::move(mine), "write its shard"); !agreed) {
    pending_.reset();
    return agreed;
  }
  auto committed = commit();
  if (committed) {
    pending.stalled += seconds() - began;
    committed = say_(Json{{"rank", rank_},
                          {"checkpoint",
                           {{"steps", pending.state.steps},
                            {"bytes", pending.bytes},
                            {"stall_s", pending.stalled},
                            {"write_s", pending.wrote},
                            {"background", options_.background}}}});
  }
  pending_.reset();
  return committed;
}

Result<void> CheckpointSaver::commit() {
  Result<void> made;
  if (rank_ == 0) made = commit_checkpoint(options_.folder, plan_, pending_->state, program_.mesh.world());
  return agree(std::move(made), "complete the checkpoint");
}

} // namespace foretrain
