#pragma once

#include <memory>
#include <string>

#include "core/base/result.h"
#include "core/spec/calibration.h"
#include "core/spec/presets.h"
#include "planner/search.h"

namespace foretrain::cli {

/// A study in the database of --db: begun before the search, so that a search that is killed shows as unfinished.
class StudyRecord {
public:
  /// Errors: those of the store.
  [[nodiscard]] static Result<StudyRecord> begin(const std::string& file, const DataFolder& data, const Study& study,
                                                 const Calibration& calibration);
  ~StudyRecord();
  StudyRecord(StudyRecord&&) noexcept;
  StudyRecord& operator=(StudyRecord&&) noexcept;

  /// Candidates, predictions, Pareto front, near misses, counts. Errors: a full disk, a lock that lasts.
  [[nodiscard]] Result<void> keep(const Study& study, const SearchResult& result);

private:
  struct Data;
  explicit StudyRecord(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

} // namespace foretrain::cli
