#include <fmt/format.h>

#include "core/base/text.h"
#include "core/spec/io.h"
#include "core/spec/presets.h"
#include "planner/cli/commands/commands.h"
#include "planner/cli/progress.h"
#include "planner/cli/table.h"

namespace foretrain::cli {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string known(const std::string& text) {
  return text.empty() ? "-" : text;
}

/// "8.03 B", "124 M", "1.01 T".
std::string short_count(std::int64_t count) {
  constexpr double kMillion = 1e6, kBillion = 1e9, kTrillion = 1e12;
  const auto value = static_cast<double>(count);
  if (value < kBillion) return fmt::format("{:.3g} M", value / kMillion);
  return value < kTrillion ? fmt::format("{:.3g} B", value / kBillion) : fmt::format("{:.3g} T", value / kTrillion);
}

Result<Rows> model_rows(const DataFolder& data) {
  Rows rows = {{"name", "params", "active", "layers", "hidden", "heads", "kv", "experts"}};
  for (const std::string& name : data.models()) {
    FORETRAIN_TRY(const ModelSpec m, data.model(name));
    const ParameterCount count = count_parameters(m);
    rows.push_back({name, short_count(count.total), short_count(count.active), std::to_string(m.layers),
                    std::to_string(m.hidden), std::to_string(m.heads), std::to_string(m.kv_heads),
                    m.moe ? fmt::format("{} of {}", m.moe->top_k, m.moe->experts) : "-"});
  }
  return rows;
}

Result<Rows> device_rows(const DataFolder& data) {
  Rows rows = {{"name", "architecture", "memory", "bandwidth", "bf16", "scale-up"}};
  for (const std::string& name : data.devices()) {
    FORETRAIN_TRY(const DeviceSpec d, data.device(name));
    rows.push_back({name, known(d.architecture), d.memory ? format_bytes(*d.memory) : "-",
                    d.memory_bandwidth ? format_rate(*d.memory_bandwidth) : "-",
                    d.bf16 ? format_flop_rate(*d.bf16) : "-", d.scaleup ? format_rate(*d.scaleup) : "-"});
  }
  return rows;
}

Result<Rows> cluster_rows(const DataFolder& data) {
  Rows rows = {{"name", "device", "devices", "per node", "inner link", "outer link"}};
  for (const std::string& name : data.clusters()) {
    FORETRAIN_TRY(const ClusterSpec c, data.cluster(name));
    const auto link = [](const TierSpec& tier) {
      return tier.link.bandwidth.value > 0 ? format_rate(tier.link.bandwidth) : "-";
    };
    rows.push_back({name, c.device.name, with_commas(device_count(c)), std::to_string(devices_per_node(c)),
                    c.tiers.empty() ? "-" : link(c.tiers.front()), c.tiers.size() < 2 ? "-" : link(c.tiers.back())});
  }
  return rows;
}

Result<Rows> semantics_rows(const DataFolder& data) {
  Rows rows = {{"name", "version", "schedules"}};
  for (const std::string& name : data.semantics()) {
    FORETRAIN_TRY(const Semantics s, data.semantics(name));
    rows.push_back({name, known(s.version), known(join(s.schedules, " "))});
  }
  return rows;
}

const std::vector<std::string>& kinds() {
  static const std::vector<std::string> list = {"models", "devices", "clusters", "semantics"};
  return list;
}

Result<Rows> rows_of(const std::string& kind, const DataFolder& data) {
  if (kind == "models") return model_rows(data);
  if (kind == "devices") return device_rows(data);
  if (kind == "clusters") return cluster_rows(data);
  if (kind == "semantics") return semantics_rows(data);
  return fail("presets", fmt::format("unknown kind '{}'", kind), hint_for(kind, kinds()));
}

template <class Spec> Result<Json> as_json(const Result<Spec>& spec) {
  if (!spec) return tl::unexpected<Error>(spec.error());
  return to_json(*spec);
}

Result<Json> document_of(const std::string& kind, const std::string& name, const DataFolder& data) {
  if (kind == "models") return as_json(load_model(data, name));
  if (kind == "devices") return as_json(data.device(name));
  if (kind == "clusters") return as_json(data.cluster(name));
  if (kind == "semantics") return as_json(data.semantics(name));
  return fail("presets", fmt::format("unknown kind '{}'", kind), hint_for(kind, kinds()));
}

} // namespace

int run_presets(const Context& context, const PresetsOptions& options) {
  if (!options.name.empty()) {
    const auto document = document_of(options.kind, options.name, context.data);
    return document ? print_and(document->dump(2) + "\n", kDone) : complain(document.error());
  }
  const auto rows = rows_of(options.kind, context.data);
  if (!rows) return complain(rows.error());
  if (!options.json) return print_and(with_bold_head(text_table(*rows), context.color), kDone);
  Json list = Json::array();
  for (std::size_t i = 1; i < rows->size(); ++i) {
    const auto document = document_of(options.kind, (*rows)[i].front(), context.data);
    if (!document) return complain(document.error());
    Json entry = {{"name", (*rows)[i].front()}, {"spec", *document}};
    if (options.kind == "models")
      if (const auto model = context.data.model((*rows)[i].front())) {
        const ParameterCount count = count_parameters(*model);
        entry["parameters"] = count.total;
        entry["active_parameters"] = count.active;
      }
    list.push_back(std::move(entry));
  }
  return print_and(Json{{options.kind, std::move(list)}}.dump(2) + "\n", kDone);
}

int run_schema(const std::string& name) {
  if (name.empty()) {
    std::string text;
    for (const std::string& known_name : schema_names()) text += known_name + "\n";
    return print_and(text, kDone);
  }
  const auto document = schema(name);
  return document ? print_and(document->dump(2) + "\n", kDone) : complain(document.error());
}

} // namespace foretrain::cli
