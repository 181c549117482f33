#include "core/spec/describe_layout.h"
#include "core/spec/io.h"
#include "core/spec/readers.h"

namespace foretrain {

Result<Layout> read_layout(const Json& json, const Where& where) {
  return read_value<Layout>(json, where);
}
Result<Layout> layout_from(const Json& json, const std::string& file) {
  return read_layout(json, Where{file, ""});
}
/// Degrees and kinds are written even where they are the defaults: scripts read them from the plans of reports.
Json to_json(const Layout& layout) {
  Json json = {{"tp", layout.tp},
               {"pp", layout.pp},
               {"cp", layout.cp},
               {"ep", layout.ep},
               {"etp", layout.etp},
               {"dp_shard", layout.dp_shard},
               {"dp_replicate", layout.dp_replicate},
               {"micro_batch", layout.micro_batch},
               {"sequence_parallel", layout.sequence_parallel}};
  const Json others = write_struct(layout);
  for (const auto& [key, value] : others.items()) json[key] = value;
  const auto kind = [&json](const char* key, std::string_view id) {
    if (!json.contains(key)) json[key] = {{"kind", std::string(id)}};
  };
  kind("schedule", layout.schedule.kind);
  kind("sharding", id_of(layout.sharding.kind));
  kind("recompute", id_of(layout.recompute.kind));
  if (layout.cp > 1) kind("context_parallel", id_of(layout.context_parallel.kind));
  if (layout.ep > 1) kind("expert_dispatch", id_of(layout.expert_dispatch.kind));
  return json;
}
Json layout_schema() {
  return schema_of<Layout>();
}

std::string_view id_of(ShardingKind value) {
  return name_of(value);
}
std::string_view id_of(ContextKind value) {
  return name_of(value);
}
std::string_view id_of(DispatchKind value) {
  return name_of(value);
}
std::string_view id_of(RecomputeKind value) {
  return name_of(value);
}
std::string_view id_of(RecomputeMethod value) {
  return name_of(value);
}
std::string_view id_of(RecomputeModule value) {
  return name_of(value);
}

} // namespace foretrain
