#include "planner/cli/progress.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace foretrain::cli {

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string progress_text(const Progress& progress, double elapsed_s) {
  const double share =
      progress.total > 0 ? static_cast<double>(progress.done) / static_cast<double>(progress.total) : 0;
  std::string text =
      fmt::format("{} {:3.0f} % · {} of {} · {} fit", progress.phase, 100 * std::min(share, 1.0),
                  with_commas(progress.done), with_commas(progress.total), with_commas(progress.fitting));
  // A guess from the first percent would jump about.
  if (share > 0.01 && share < 1) text += fmt::format(" · {:.0f} s left", elapsed_s / share * (1 - share));
  return text;
}

std::string large_space_note(const SpaceSize& size) {
  constexpr std::int64_t kLarge = 20'000'000;
  if (size.left < kLarge) return {};
  return fmt::format(
      "note: {} layouts, {} of them with degrees that are legal: the search may take long. Ctrl-C ends it and keeps "
      "what it found.\nnote: --where makes it smaller (degrees count most: 'tp <= 8 and pp <= 16 and cp == 1', then "
      "micro_batch, sharding, schedule), and so does `space` in a study file.",
      with_commas(size.enumerated), with_commas(size.left));
}

void ProgressLine::show(const Progress& progress) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  if (progress.phase != phase_) {
    phase_ = progress.phase;
    phase_start_ = now;
  }
  const std::string text = progress_text(progress, std::chrono::duration<double>(now - phase_start_).count());
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::clear() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

} // namespace foretrain::cli
