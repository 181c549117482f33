// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gui/fixtures.h"

#include <atomic>

#include <unistd.h>

#include "core/base/check.h"
#include "core/spec/io.h"
#include "tests/support/places.h"

namespace foretrain::gui::test {

Environment environment() {
  Environment environment;
  environment.data = DataFolder{foretrain::test::source_folder() / "data"};
  const std::filesystem::path programs = foretrain::test::build_folder() / "bin";
  environment.worker = programs / "foretrain-sim-worker";
  if (std::filesystem::exists(programs / "foretrain")) environment.command = programs / "foretrain";
  if (std::filesystem::exists(programs / "foretrain-run")) environment.executor = programs / "foretrain-run";
  environment.version = "test";
  environment.jobs = 1;
  return environment;
}

Json small_document() {
  auto json = read_json_file(foretrain::test::source_folder() / "tests/gui/small_study.json");
  FORETRAIN_CHECK(json.has_value(), "the study of the tests reads");
  return *json;
}

std::shared_ptr<const Results> made_up_results(int rows) {
  auto results = std::make_shared<Results>();
  auto study = study_from(small_document(), "small_study.json", environment().data);
  FORETRAIN_CHECK(study.has_value(), "the study of the tests is legal");
  results->study = std::move(*study);
  results->enumerated = rows * 3;
  results->fits = rows;
  results->rejected = {{"out-of-memory", rows}, {"cp-heads", rows}};
  std::uint32_t noise = 12345;
  for (int i = 0; i < rows; ++i) {
    noise = noise * 1664525U + 1013904223U;
    Row row;
    row.layout.tp = 1 << (i % 4);
    row.layout.pp = 1 << (i / 4 % 3);
    row.layout.dp_shard = 8 / std::min(8, row.layout.tp * row.layout.pp);
    row.layout.micro_batch = 1 + i % 5;
    row.layout.schedule.kind = row.layout.pp > 1 && i % 2 == 1 ? "interleaved" : "1f1b";
    row.layout.schedule.chunks = row.layout.schedule.kind == "interleaved" ? 2 + i / 12 : 1;
    if (i >= 60) row.layout.recompute = {RecomputeKind::full, RecomputeMethod::uniform, 1 + i / 60, {}}; // no two alike
    row.slots.step_seconds = 1 + double(i) / std::max(1, rows) + double(noise % 1000) * 1e-6;
    row.slots.device_bytes = std::int64_t(noise % 70 + 5) * kGiB;
    results->rows.push_back(std::move(row));
  }
  if (rows > 2)
    results->near_misses.push_back(
        {results->rows[1].layout, {"out-of-memory", "stage 0 needs more", 90e9, 80e9, {"tp 4"}}});
  mark_front(results->rows);
  return results;
}

Folder::Folder() {
  static std::atomic<int> next{0};
  path_ = std::filesystem::temp_directory_path() /
          ("foretrain-gui-" + std::to_string(::getpid()) + "-" + std::to_string(next++));
  std::filesystem::create_directories(path_);
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
  std::filesystem::remove_all(path_, ignored);
}

} // namespace foretrain::gui::test
