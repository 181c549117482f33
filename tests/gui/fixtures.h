// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "gui/model/session.h"
#include "tests/support/places.h"

namespace foretrain::gui::test {

/// Presets of the source tree, programs of the build.
[[nodiscard]] Environment environment();
/// small_study.json
[[nodiscard]] Json small_document();
/// Rows that no search made: layouts that differ, times and memory that do not follow from them.
[[nodiscard]] std::shared_ptr<const Results> made_up_results(int rows);

/// Polls until it holds. False: it does not within a minute (of an optimised program).
template <class Condition> [[nodiscard]] bool wait_until(Session& session, const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60 * foretrain::test::slowness());
  while (std::chrono::steady_clock::now() < end) {
    session.poll();
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

/// Removed with what is in it.
class Folder {
public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::filesystem::path operator/(const char* name) const { return path_ / name; }

private:
  std::filesystem::path path_;
};

} // namespace foretrain::gui::test
