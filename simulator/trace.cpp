#include "simulator/trace.h"

#include <iterator>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "core/base/json.h"
#include "core/spec/io.h"

namespace foretrain {
namespace {

std::string json_text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Lanes that appear on each stage, so that empty threads are not listed.
std::map<std::pair<int, int>, bool> used_lanes(const Simulation& simulation) {
  std::map<std::pair<int, int>, bool> used;
  for (const TimelineEvent& event : simulation.events) used[{event.stage, static_cast<int>(event.lane)}] = true;
  return used;
}

/// Ties each receive to the send that fed it: both ends of a transfer end together.
class Arrows {
public:
  void add(const TimelineEvent& event, std::string& out) {
    const bool sends = event.lane == Lane::send_forward || event.lane == Lane::send_backward;
    const bool receives = event.lane == Lane::receive_forward || event.lane == Lane::receive_backward;
    if (!sends && !receives) return;
    const bool forward = event.lane == Lane::send_forward || event.lane == Lane::receive_forward;
    const auto key = std::pair(std::pair(event.end, event.start), std::pair(forward, event.micro_batch));
    const auto [it, fresh] = open_.try_emplace(key, next_);
    if (fresh) ++next_;
    fmt::format_to(
        std::back_inserter(out),
        ",\n{{\"name\":\"transfer\",\"cat\":\"p2p\",\"ph\":\"{}\",\"bp\":\"e\",\"id\":{},\"pid\":{},\"tid\":{},"
        "\"ts\":{:.3f}}}",
        sends ? "s" : "f", it->second, event.stage, static_cast<int>(event.lane),
        (sends ? event.start : event.end) * 1e6);
  }

private:
  std::map<std::pair<std::pair<double, double>, std::pair<bool, int>>, int> open_;
  int next_ = 1;
};

} // namespace

std::string chrome_trace(const Simulation& simulation) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const auto add = std::back_inserter(out);
  bool first = true;
  const auto separate = [&] {
    out += first ? "\n" : ",\n";
    first = false;
  };
  for (std::size_t stage = 0; stage < simulation.stages.size(); ++stage) {
    separate();
    fmt::format_to(add, "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{},\"args\":{{\"name\":\"stage {}\"}}}}",
                   stage, stage);
  }
  for (const auto& [key, present] : used_lanes(simulation)) {
    separate();
    fmt::format_to(add, "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}",
                   key.first, key.second, json_text(name_of(static_cast<Lane>(key.second))));
  }
  Arrows arrows;
  for (const TimelineEvent& event : simulation.events) {
    separate();
    fmt::format_to(add,
                   "{{\"name\":{},\"cat\":{},\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
                   "\"args\":{{\"micro_batch\":{},\"layer\":{}}}}}",
                   json_text(event.name), json_text(id_of(event.part)), event.stage, static_cast<int>(event.lane),
                   event.start * 1e6, (event.end - event.start) * 1e6, event.micro_batch, event.layer);
    arrows.add(event, out);
  }
  for (std::size_t stage = 0; stage < simulation.stages.size(); ++stage)
    for (const MemorySample& sample : simulation.stages[stage].memory) {
      separate();
      fmt::format_to(add,
                     "{{\"name\":\"memory\",\"ph\":\"C\",\"pid\":{},\"ts\":{:.3f},\"args\":{{\"allocated\":{},"
                     "\"peak\":{}}}}}",
                     stage, sample.at * 1e6, sample.allocated.value, sample.peak.value);
    }
  out += "\n]}\n";
  return out;
}

} // namespace foretrain
