#pragma once

#include <string>
#include <vector>

#include <SQLiteCpp/SQLiteCpp.h>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/spec/io.h"
#include "db/store.h"

namespace foretrain {

/// Names a stored document in errors: "plans.db: candidate 12".
[[nodiscard]] inline std::string row_name(const std::string& path, const char* table, std::int64_t row) {
  return path + ": " + table + " " + std::to_string(row);
}

/// How much an engine tells: a higher one is read in place of a lower one.
[[nodiscard]] inline int detail_of(Engine engine) {
  switch (engine) {
  case Engine::slots:
    return 0;
  case Engine::replay:
    return 1;
  case Engine::simgrid:
    return 2;
  }
  return 0;
}

[[nodiscard]] inline Bytes peak_device(const Prediction& prediction) {
  Bytes peak;
  for (const StageMemory& stage : prediction.memory) peak = std::max(peak, stage.device);
  return peak;
}

/// The first of the stages that take the most of their device; 0 without stages.
[[nodiscard]] inline int fullest_stage(const Prediction& prediction) {
  std::size_t fullest = 0;
  for (std::size_t i = 1; i < prediction.memory.size(); ++i)
    if (prediction.memory[i].device > prediction.memory[fullest].device) fullest = i;
  return static_cast<int>(fullest);
}

/// Columns engine, semantics, calibration, document, from `first` on.
[[nodiscard]] inline Result<StoredPrediction> read_prediction(SQLite::Statement& row, int first,
                                                              const std::string& where) {
  StoredPrediction stored;
  FORETRAIN_TRY(stored.key.engine, engine_from(row.getColumn(first).getString(), where));
  stored.key.semantics = row.getColumn(first + 1).getString();
  stored.key.calibration = row.getColumn(first + 2).getString();
  FORETRAIN_TRY(const Json document, parse_json(row.getColumn(first + 3).getString(), where));
  FORETRAIN_TRY(stored.prediction, prediction_from(document, where));
  return stored;
}

} // namespace foretrain
