#pragma once

#include <chrono>
#include <string>

#include "planner/search.h"

namespace foretrain::cli {

/// "search  43 % · 12,345 of 28,800 · 512 fit · 3 s left".
[[nodiscard]] std::string progress_text(const Progress& progress, double elapsed_s);

/// What to expect of a space that takes longer than a coffee, and how to make it smaller; empty for others.
[[nodiscard]] std::string large_space_note(const SpaceSize& size);

/// One line on stderr that is written over; gone at the end.
class ProgressLine {
public:
  explicit ProgressLine(bool shown) : shown_(shown) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void show(const Progress& progress);
  void clear();

private:
  bool shown_;
  bool drawn_ = false;
  std::string phase_;
  std::chrono::steady_clock::time_point phase_start_;
};

/// "12,345".
[[nodiscard]] std::string with_commas(std::int64_t number);

} // namespace foretrain::cli
