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

} // namespace foretrain
