#include "core/program/schedules/all.h"

namespace foretrain {

const Catalogue<Schedule>& schedules() {
  static const Catalogue<Schedule> catalogue([] {
    std::vector<std::unique_ptr<const Schedule>> entries;
    entries.push_back(make_gpipe());
    entries.push_back(make_one_f_one_b());
    entries.push_back(make_interleaved());
    entries.push_back(make_zero_bubble_h1());
    entries.push_back(make_zero_bubble_h2());
    entries.push_back(make_zero_bubble_capped(1));
    entries.push_back(make_zero_bubble_capped(2));
    return entries;
  }());
  return catalogue;
}

} // namespace foretrain
