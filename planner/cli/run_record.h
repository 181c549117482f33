#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/base/result.h"
#include "planner/cli/executed_plan.h"
#include "planner/measured_run.h"

namespace foretrain::cli {

enum class RunEnd { done, failed, interrupted };

/// A run in the database: begun before the first rank starts, so that a run that is killed shows as unfinished.
class RunRecord {
public:
  /// Errors: those of the store.
  [[nodiscard]] static Result<RunRecord> begin(const std::string& file, const DataFolder& data,
                                               const ExecutedPlan& plan, const std::string& launcher);
  ~RunRecord();
  RunRecord(RunRecord&&) noexcept;
  RunRecord& operator=(RunRecord&&) noexcept;

  [[nodiscard]] std::int64_t id() const;
  /// What was measured, whole or not, and how it ended. Errors: a full disk, a lock that lasts.
  [[nodiscard]] Result<void> keep(const ExecutedPlan& plan, const MeasuredRun& run, const std::filesystem::path& folder,
                                  RunEnd end, const std::string& message);

private:
  struct Data;
  explicit RunRecord(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

} // namespace foretrain::cli
