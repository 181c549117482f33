#include "planner/validate/collectives.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "core/spec/calibration.h"
#include "simulator/cost.h"

namespace foretrain::validation {
namespace {

GroupShape shape_of(const CollectiveTable& table) {
  GroupShape shape;
  shape.size = table.per_node * table.nodes;
  shape.per_tier = {table.per_node, table.nodes, 1, 1, 1, 1};
  return shape;
}

/// Errors of `calibration` at the given points of a table that it does not hold.
Result<void> judge(const ClusterSpec& cluster, const Calibration& calibration, const CollectiveTable& table,
                   const std::vector<std::size_t>& points, std::vector<double>& errors) {
  FORETRAIN_TRY(const CostModel cost, CostModel::make(cluster, calibration));
  for (const std::size_t i : points) {
    const Bytes bytes(std::llround(std::exp2(table.log2_bytes[i])));
    const double seconds = cost.collective(collective_of(table.kind), shape_of(table), DType::bf16, bytes).seconds;
    errors.push_back(100 * std::abs(seconds / (table.microseconds[i] * 1e-6) - 1));
  }
  return {};
}

Result<void> leave_sizes_out(const ClusterSpec& cluster, const Calibration& whole, std::vector<double>& errors) {
  for (std::size_t t = 0; t < whole.collectives.size(); ++t) {
    Calibration thin = whole;
    CollectiveTable& table = thin.collectives[t];
    const CollectiveTable& measured = whole.collectives[t];
    table.log2_bytes.clear();
    table.microseconds.clear();
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < measured.log2_bytes.size(); ++i) {
      if (i % 2 == 1 && i + 1 < measured.log2_bytes.size()) {
        out.push_back(i);
        continue;
      }
      table.log2_bytes.push_back(measured.log2_bytes[i]);
      table.microseconds.push_back(measured.microseconds[i]);
    }
    if (out.empty()) continue;
    if (auto done = judge(cluster, thin, measured, out, errors); !done) return done;
  }
  return {};
}

Result<void> leave_counts_out(const ClusterSpec& cluster, const Calibration& whole, std::vector<double>& errors) {
  std::map<TableKind, std::vector<std::size_t>> tables; // ascending in devices: the order of the file
  for (std::size_t t = 0; t < whole.collectives.size(); ++t)
    if (whole.collectives[t].nodes == 1) tables[whole.collectives[t].kind].push_back(t);
  for (auto& [kind, list] : tables) {
    if (list.size() < 2) continue;
    std::sort(list.begin(), list.end(), [&](std::size_t a, std::size_t b) {
      return whole.collectives[a].per_node < whole.collectives[b].per_node;
    });
    const std::size_t out = list.size() > 2 ? list[list.size() / 2] : list.back();
    Calibration without = whole;
    without.collectives.erase(without.collectives.begin() + static_cast<std::ptrdiff_t>(out));
    std::vector<std::size_t> all(whole.collectives[out].log2_bytes.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    if (auto done = judge(cluster, without, whole.collectives[out], all, errors); !done) return done;
  }
  return {};
}

/// The first preset whose machines hold this device.
Result<std::optional<ClusterSpec>> cluster_with(const DataFolder& data, const std::string& device) {
  for (const std::string& name : data.clusters()) {
    FORETRAIN_TRY(ClusterSpec cluster, data.cluster(name));
    if (cluster.device.name == device && unknown_figures(cluster).empty()) return std::optional(std::move(cluster));
  }
  return std::optional<ClusterSpec>();
}

} // namespace

double nearest_rank(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<std::size_t>(rank, 1) - 1];
}

Result<std::vector<CollectiveErrors>> judge_collectives(const DataFolder& data) {
  std::vector<CollectiveErrors> result;
  for (const std::string& device : data.devices()) {
    FORETRAIN_TRY(const DeviceSpec spec, data.device(device));
    FORETRAIN_TRY(const Calibration calibration, load_calibration(data.root, spec));
    if (calibration.name != device || calibration.collectives.empty()) continue;
    FORETRAIN_TRY(const std::optional<ClusterSpec> cluster, cluster_with(data, device));
    if (!cluster) continue;
    CollectiveErrors errors{device, {}, {}};
    if (auto done = leave_sizes_out(*cluster, calibration, errors.sizes); !done)
      return tl::unexpected<Error>(std::move(done).error());
    if (auto done = leave_counts_out(*cluster, calibration, errors.counts); !done)
      return tl::unexpected<Error>(std::move(done).error());
    result.push_back(std::move(errors));
  }
  return result;
}

} // namespace foretrain::validation
