#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/program/program.h"
#include "core/spec/plan.h"

namespace foretrain {

/// How the ranks of a run find each other: a file that all see (one machine), or a rank that listens.
struct Rendezvous {
  std::filesystem::path file; ///< empty: over TCP
  std::string host;           ///< of rank 0
  std::uint16_t port = 0;
};

enum class RecordOps { none, first, all }; ///< steps whose list of ops is written

struct RunSettings {
  int steps = 1;
  std::uint64_t seed = 1;
  double learning_rate = 1e-3;
  double clip_norm = 1;
  std::filesystem::path out; ///< every rank appends its records, one JSON document a line
  RecordOps ops = RecordOps::first;
  std::string address = "127.0.0.1"; ///< of this machine, for the other ranks
  std::chrono::milliseconds timeout{60'000};
};

/// A plan that the executor can run, with its Program.
struct Runnable {
  Plan plan;
  Program program;
};

/// Runs one rank of a plan in this process, to the end. Prepares the process (allocator, scheduler), so once per
/// process.
[[nodiscard]] Result<void> run_rank(const Runnable& runnable, int rank, const Rendezvous& rendezvous,
                                    const RunSettings& settings);

/// Makes an empty file, or empties the one that is there. Error: not a file (a device, a folder), not writable.
[[nodiscard]] Result<void> start_file(const std::filesystem::path& path);

/// Appends one document as a line, in one write: several processes may do so at once.
[[nodiscard]] Result<void> append_line(const std::filesystem::path& path, const Json& document);

} // namespace foretrain
