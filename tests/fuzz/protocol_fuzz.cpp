// A line between the planner and its simulator process, either way: an error, or what writes the same again.
#include "simulator/simgrid/protocol.h"
#include "tests/fuzz/target.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view line = fuzz::text_of(bytes, size);
  if (const auto request = request_from(line)) {
    const auto again = request_from(request_line(*request));
    fuzz::require(again.has_value() && *again == *request, "a request reads back equal");
  }
  if (const auto reply = reply_from(line); reply && reply->result) {
    const std::string once = reply_line(reply->id, reply->result);
    const auto again = reply_from(once);
    fuzz::require(again.has_value() && reply_line(again->id, again->result) == once, "a reply reads back equal");
  }
  return 0;
}
