#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/spec/plan.h"
#include "executor/checkpoint/pieces.h"

/// A checkpoint is a folder: `index.json`, which is written last, and a safetensors file per rank with what that rank
/// alone owns: no element is in two files. Its names, shapes and places are those of whole tensors, so that any layout
/// can read it.
namespace foretrain {

/// When a run makes checkpoints.
struct CheckpointOptions {
  std::filesystem::path folder; ///< of all checkpoints of the run; empty: none are made
  int every = 0;                ///< steps between two; 0: only after the last step
  bool background = false;      ///< the state is copied in memory and written while training goes on
};

/// What a run goes on from, beside tensors.
struct CheckpointState {
  int steps = 0;          ///< optimizer steps done; the next one is the step of this number
  std::uint64_t seed = 1; ///< of weights and synthetic tokens
  Json data;              ///< where tokens come from, "synthetic" or what `TokenFile::describe` says
};

struct Checkpoint {
  struct Shard {
    std::string name;
    std::int64_t bytes = 0;
    std::string header; ///< digest
  };
  std::filesystem::path folder;
  CheckpointState state;
  ModelSpec model;
  JobSpec job;
  Layout layout;
  std::vector<Shard> shards;
};

/// Name of the folder of a checkpoint inside the folder of all: "step-00000010".
[[nodiscard]] std::string checkpoint_name(int steps);
[[nodiscard]] std::string shard_name(int rank);

/// The newest checkpoint in a folder of several; the folder itself when it is one. Error: there is none.
[[nodiscard]] Result<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder);

/// Reads index.json. Errors: it is missing, damaged, or of a later version.
[[nodiscard]] Result<Checkpoint> read_checkpoint(const std::filesystem::path& folder);

/// Whether a plan can go on from a checkpoint: the layout may differ, the model and what decides the numbers may not.
/// Error: names what differs, and both values.
[[nodiscard]] Result<void> check_same_training(const Checkpoint& checkpoint, const Plan& plan,
                                               const CheckpointState& state);

/// Opens all shards. Errors: one is missing, cut off, or has another header than when the checkpoint was made.
[[nodiscard]] Result<PieceSource> open_shards(const Checkpoint& checkpoint);

/// Writes what this rank owns, to the disk. Padding is left out. Errors: cannot be written.
[[nodiscard]] Result<void> write_shard(const std::filesystem::path& folder, int rank,
                                       const std::vector<StatePart>& parts);

/// Where the checkpoint after so many steps grows until it is complete.
[[nodiscard]] std::filesystem::path unfinished_checkpoint(const std::filesystem::path& all, int steps);
/// Makes that folder, empty: what a crash left there goes.
[[nodiscard]] Result<void> begin_checkpoint(const std::filesystem::path& all, int steps);
/// Once every rank has written its shard: checks them, writes the index, and gives the folder its name in one rename. A
/// crash at any moment leaves the checkpoints that were there. Errors: a shard is missing or cut off, a full disk.
[[nodiscard]] Result<void> commit_checkpoint(const std::filesystem::path& all, const Plan& plan,
                                             const CheckpointState& state, int world);
/// After a failure: frees the disk.
void drop_checkpoint(const std::filesystem::path& all, int steps);

} // namespace foretrain
