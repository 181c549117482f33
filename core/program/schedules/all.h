#pragma once

#include <memory>

#include "core/program/schedules/schedule.h"

/// One function per schedule, called once by all.cpp.
namespace foretrain {

[[nodiscard]] std::unique_ptr<const Schedule> make_gpipe();
[[nodiscard]] std::unique_ptr<const Schedule> make_one_f_one_b();
[[nodiscard]] std::unique_ptr<const Schedule> make_interleaved();
[[nodiscard]] std::unique_ptr<const Schedule> make_zero_bubble_h1();
[[nodiscard]] std::unique_ptr<const Schedule> make_zero_bubble_h2();
/// `cap`: in units of what the first stage of 1F1B retains, 1 or 2.
[[nodiscard]] std::unique_ptr<const Schedule> make_zero_bubble_capped(int cap);

} // namespace foretrain
