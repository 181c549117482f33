// A filter expression: an error with its column, or a filter that decides.
#include "planner/evaluate.h"
#include "planner/filter/filter.h"
#include "tests/fuzz/target.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const Result<Filter> filter = Filter::parse(fuzz::text_of(bytes, size), "--where");
  if (!filter) return 0;
  static const JobSpec job;
  static const ClusterSpec cluster = fuzz::data().cluster("dgx-h100").value();
  Layout layout;
  layout.tp = 8;
  const Evaluation slots{1.5, 70'000'000'000, 0, Evidence::fitted};
  (void)filter->test(FieldRow{job, cluster, layout, nullptr, nullptr});
  (void)filter->admits(FieldRow{job, cluster, layout, &slots, nullptr});
  return 0;
}
