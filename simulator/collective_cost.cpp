#include <algorithm>
#include <cmath>

#include "simulator/cost.h"

namespace foretrain {
namespace {

constexpr int kNoTable = -1;

/// The measured table that a collective is read from.
int table_kind(Collective kind) {
  switch (kind) {
  case Collective::all_reduce:
    return static_cast<int>(TableKind::all_reduce);
  case Collective::all_gather:
    return static_cast<int>(TableKind::all_gather);
  case Collective::reduce_scatter:
    return static_cast<int>(TableKind::reduce_scatter);
  case Collective::all_to_all:
    return static_cast<int>(TableKind::all_to_all);
  case Collective::broadcast:
  case Collective::ring_exchange:
    return kNoTable;
  }
  return kNoTable;
}

int members(const GroupShape& shape, int tier) {
  return shape.per_tier[static_cast<std::size_t>(tier)];
}

/// Members inside one group of the tier below `tier`.
int members_below(const GroupShape& shape, int tier) {
  int count = 1;
  for (int i = 0; i < tier; ++i) count *= members(shape, i);
  return count;
}

int outermost(const GroupShape& shape) {
  return shape.tier();
}

/// The same nodes, all inside one group of tier 1: what multi-node tables were measured on.
GroupShape flat(int per_node, int nodes) {
  GroupShape shape;
  shape.size = per_node * nodes;
  shape.per_tier = {per_node, nodes, 1, 1, 1, 1};
  return shape;
}

} // namespace

Collective collective_of(TableKind kind) {
  switch (kind) {
  case TableKind::all_reduce:
    return Collective::all_reduce;
  case TableKind::all_gather:
    return Collective::all_gather;
  case TableKind::reduce_scatter:
    return Collective::reduce_scatter;
  case TableKind::all_to_all:
    return Collective::all_to_all;
  }
  return Collective::all_reduce;
}

/// Bandwidth of one rank's port towards a tier when `members` of a group use it: a pair of a full mesh has its own link
/// only, a ring in a torus uses the axes that the group spans.
double CostModel::port(int tier, int group, double share) const {
  const Tier& at_tier = tiers_[index(tier)];
  const double rate = at_tier.bandwidth * share;
  switch (at_tier.fabric) {
  case Fabric::mesh:
    return at_tier.fanout > 1 ? rate * std::min(1.0, static_cast<double>(group - 1) / (at_tier.fanout - 1)) : rate;
  case Fabric::torus: {
    int axes = 0;
    std::int64_t covered = 1;
    for (const int extent : at_tier.torus) {
      if (covered >= group) break;
      covered *= extent;
      ++axes;
    }
    return at_tier.torus.empty() ? rate : rate * std::max(1, axes) / static_cast<double>(at_tier.torus.size());
  }
  case Fabric::switched:
  case Fabric::rail:
  case Fabric::fat_tree:
    return rate;
  }
  return rate;
}

/// Bytes that a ring over all members sends, rails in parallel: each rank `factor` times the tensor inside its node
/// and, at each tier, its share among the members below.
std::array<double, kTiers> CostModel::ring_bytes(const GroupShape& shape, double bytes, double factor) const {
  std::array<double, kTiers> sent{};
  for (int i = 0; i < kTiers; ++i)
    if (members(shape, i) > 1) sent[index(i)] = bytes * factor / members_below(shape, i);
  return sent;
}

/// The fastest of ring and (with `tree_factor`, over nodes) tree, each with the bulk and the low-latency protocol.
/// Transfers of all tiers are pipelined: the slowest decides.
double CostModel::ring_or_tree(const GroupShape& shape, double bytes, double ring_factor, double rounds,
                               double tree_factor) const {
  const int outer = outermost(shape);
  const bool tree = tree_factor > 0 && shape.nodes() > 1;
  double slowest = 0; // seconds per byte
  double bulk = 0, small = 0, tree_bulk = 0, tree_small = 0;
  int below = 1;
  for (int i = 0; i <= outer; ++i) {
    const int count = members(shape, i);
    if (count <= 1) continue;
    const Tier& tier = tiers_[index(i)];
    slowest = std::max(slowest, 1 / (below * port(i, count, tier.ring)));
    bulk += (count - 1) * tier.step;
    small += (count - 1) * tier.step_small;
    if (tree) {
      const double hops = i > 0 ? std::log2(static_cast<double>(count)) : count - 1;
      tree_bulk += hops * tier.step;
      tree_small += hops * tier.step_small;
    }
    below *= count;
  }
  const double small_share = tiers_[index(outer)].small_share;
  const double moved = bytes * ring_factor * slowest;
  double fastest = std::min(moved + rounds * bulk, moved / small_share + rounds * small);
  if (tree) {
    const double whole = bytes * tree_factor * slowest;
    fastest = std::min({fastest, whole + rounds * tree_bulk, whole / small_share + rounds * tree_small});
  }
  return fastest;
}

/// Every rank sends a part to every other. A part that leaves the node of a rail fabric first hops to the rank on the
/// right rail (PXN).
CostModel::Path CostModel::all_to_all(const GroupShape& shape, double bytes, double network_share) const {
  Path path;
  const double size = shape.size;
  for (int i = 1; i < kTiers; ++i) {
    if (members(shape, i) <= 1) continue;
    path.bytes[index(i)] = bytes * (size - members_below(shape, i)) / size * network_share;
  }
  const int per_node = members(shape, 0);
  if (per_node > 1) {
    path.bytes[0] = bytes * (per_node - 1) / size;
    for (int i = 1; i < kTiers; ++i)
      if (members(shape, i) > 1 && tiers_[index(i)].fabric == Fabric::rail) {
        path.bytes[0] += bytes * (size - per_node) / size;
        break;
      }
  }
  for (int i = 0; i < kTiers; ++i)
    if (members(shape, i) > 1) path.latency += (members(shape, i) - 1) * tiers_[index(i)].step_small;
  return path;
}

double CostModel::exchange_all(const GroupShape& shape, const Path& path) const {
  double slowest = 0;
  for (int i = 0; i <= outermost(shape); ++i) {
    const double bytes = path.bytes[index(i)];
    if (bytes > 0) slowest = std::max(slowest, bytes / port(i, members(shape, i), tiers_[index(i)].all_to_all));
  }
  return slowest + path.latency;
}

/// A send to the next rank of a ring: of the members below a tier, one crosses it.
double CostModel::exchange(const GroupShape& shape, double bytes) const {
  const int outer = outermost(shape);
  double rate = port(0, members(shape, 0), tiers_[0].point_to_point);
  if (members(shape, 0) <= 1) rate = 0;
  for (int i = 1; i <= outer; ++i) {
    if (members(shape, i) <= 1) continue;
    const Tier& tier = tiers_[index(i)];
    const double own_port = tiers_[1].bandwidth * tier.point_to_point;
    const double edge = std::min(own_port, tier.bandwidth * tier.point_to_point * members_below(shape, i));
    rate = rate > 0 ? std::min(rate, edge) : edge;
  }
  return tiers_[index(outer)].step + bytes / rate;
}

bool CostModel::reduces_in_switch(Collective kind, int size) const {
  return kind == Collective::all_reduce && tiers_[0].reduction > 0 && size >= tiers_[0].reduction_from;
}

double CostModel::formula(Collective kind, const GroupShape& shape, double bytes, double network_share) const {
  const double n = shape.size;
  const double gather = (n - 1) / n;
  const double base = tiers_[index(outermost(shape))].base;
  switch (kind) {
  case Collective::all_gather:
  case Collective::reduce_scatter:
    return base + ring_or_tree(shape, bytes, gather, 1, 0);
  case Collective::broadcast:
    return base + ring_or_tree(shape, bytes, 1, 1, 0);
  case Collective::all_to_all:
    return base + exchange_all(shape, all_to_all(shape, bytes, network_share));
  case Collective::all_reduce: {
    double seconds = base + ring_or_tree(shape, bytes, 2 * gather, 2, 2);
    const Tier& node = tiers_[0];
    if (shape.nodes() == 1 && reduces_in_switch(kind, shape.size)) {
      constexpr double kSwitchReduction = 25e-6; // NCCL's NVLS latency, src/graph/tuning.cc
      seconds = std::min(seconds, kSwitchReduction + bytes * 2 * gather / (node.bandwidth * node.reduction));
    }
    return seconds;
  }
  case Collective::ring_exchange:
    return exchange(shape, bytes);
  }
  return 0;
}

/// The formula for what a table measured.
double CostModel::anchored(const CollectiveTable& table, int log2_bytes) const {
  return formula(collective_of(table.kind), flat(table.per_node, table.nodes), std::exp2(log2_bytes), 1);
}

double CostModel::at(const Table& table, double log2_bytes) {
  const double clamped = std::clamp(log2_bytes, 0.0, static_cast<double>(kSizes) - 1.001);
  const auto left = static_cast<std::size_t>(clamped);
  const double share = clamped - static_cast<double>(left);
  return table.log2_seconds[left] + (table.log2_seconds[left + 1] - table.log2_seconds[left]) * share;
}

/// The formula, anchored at measurements. Inside a node: measured groups, between two of them by the logarithm of their
/// size, beyond them by what the formula adds. Over nodes: measured node counts alike, else the node's own duration
/// plus what the formula adds for the network.
Cost CostModel::from_tables(Collective kind, const GroupShape& shape, double bytes) const {
  const int nodes = shape.nodes();
  const int per_node = shape.per_node();
  const bool several = nodes > 1;
  const int wanted = several ? nodes : per_node;
  const auto key = [several](const Table& table) { return several ? table.nodes : table.per_node; };
  const Table* below = nullptr;
  const Table* above = nullptr;
  for (const Table& table : tables_[static_cast<std::size_t>(table_kind(kind))]) {
    if ((table.nodes > 1) != several || (several && table.per_node != per_node)) continue;
    if (key(table) <= wanted) {
      below = &table;
    } else {
      above = &table;
      break;
    }
  }
  const double size = std::log2(std::max(1.0, bytes));
  const auto evidence = [](const Table& table) { return table.elsewhere ? Evidence::fitted : Evidence::interpolated; };
  if (below && key(*below) == wanted && shape.tier() <= 1) return {std::exp2(at(*below, size)), evidence(*below)};
  const auto flat_formula = [&](int count) {
    return formula(kind, several ? flat(per_node, count) : flat(count, 1), bytes, 1);
  };
  if (below && above && shape.tier() <= 1) {
    const double left = std::log2(static_cast<double>(key(*below)));
    const double right = std::log2(static_cast<double>(key(*above)));
    const double share = (std::log2(static_cast<double>(wanted)) - left) / (right - left);
    return {std::exp2(at(*below, size) * (1 - share) + at(*above, size) * share),
            std::max(evidence(*below), evidence(*above))};
  }
  const double by_formula = formula(kind, shape, bytes, 1);
  if (below) {
    const int from = key(*below);
    if (!several && reduces_in_switch(kind, from) != reduces_in_switch(kind, wanted))
      return {by_formula, Evidence::fitted};
    return {std::exp2(at(*below, size)) + std::max(0.0, by_formula - flat_formula(from)), Evidence::fitted};
  }
  const bool anchored = several && per_node > 1 && !tables_[static_cast<std::size_t>(table_kind(kind))].empty();
  const double inside = anchored ? from_tables(kind, flat(per_node, 1), bytes).seconds : 0;
  if (above && several) {
    const double most = std::exp2(at(*above, size));
    const double less = most - (flat_formula(key(*above)) - by_formula);
    return {std::min(most, std::max(inside, less)), Evidence::fitted};
  }
  if (!anchored) return {by_formula, Evidence::fitted};
  const double added = std::max(0.0, by_formula - formula(kind, flat(per_node, 1), bytes, 1));
  return {inside + added, Evidence::fitted};
}

Cost CostModel::collective(Collective kind, const GroupShape& shape, DType dtype, Bytes bytes, int rounds,
                           double network_share) const {
  if (shape.size <= 1 || bytes.value <= 0) return {};
  Cost cost = by_itself(kind, shape, dtype, bytes, rounds, network_share);
  const InStepModel& in_step = calibration_.in_step;
  const int times = kind == Collective::ring_exchange ? rounds : 1;
  cost.seconds += in_step.wait.value * times + in_step.stretch * cost.seconds;
  return cost;
}

Cost CostModel::by_itself(Collective kind, const GroupShape& shape, DType /*dtype*/, Bytes bytes, int rounds,
                          double network_share) const {
  const auto amount = static_cast<double>(bytes.value);
  const Evidence links =
      std::max(calibration_.inner.evidence, shape.nodes() > 1 ? calibration_.network.evidence : Evidence::measured);
  if (table_kind(kind) == kNoTable || network_share != 1) {
    const int times = kind == Collective::ring_exchange ? rounds : 1;
    return {formula(kind, shape, amount, network_share) * times, links};
  }
  const Cost cost = from_tables(kind, shape, amount);
  return {cost.seconds, cost.evidence == Evidence::interpolated ? cost.evidence : std::max(cost.evidence, links)};
}

Wire CostModel::wire(Collective kind, const GroupShape& shape, DType dtype, Bytes bytes, int rounds,
                     double network_share) const {
  Wire wire;
  if (shape.size <= 1 || bytes.value <= 0) return wire;
  const auto amount = static_cast<double>(bytes.value);
  const Cost cost = collective(kind, shape, dtype, bytes, rounds, network_share);
  const double total = cost.seconds;
  wire.evidence = cost.evidence;
  constexpr double kMostLatency = 0.95; // some of the duration must move bytes
  wire.latency =
      std::min(kMostLatency * total, collective(kind, shape, dtype, Bytes(1), rounds, network_share).seconds);
  wire.seconds = total - wire.latency;
  const double gather = static_cast<double>(shape.size - 1) / shape.size;
  switch (kind) {
  case Collective::all_reduce:
    wire.bytes_per_rank = ring_bytes(shape, amount, 2 * gather);
    break;
  case Collective::all_gather:
  case Collective::reduce_scatter:
    wire.bytes_per_rank = ring_bytes(shape, amount, gather);
    break;
  case Collective::broadcast:
    wire.bytes_per_rank = ring_bytes(shape, amount, 1);
    break;
  case Collective::all_to_all:
    wire.bytes_per_rank = all_to_all(shape, amount, network_share).bytes;
    break;
  case Collective::ring_exchange:
    wire.bytes_per_rank = ring_bytes(shape, amount * rounds, 1);
    break;
  }
  return wire;
}

Cost CostModel::transfer(int tier, Bytes bytes) const {
  if (bytes.value <= 0) return {};
  const Tier& at_tier = tiers_[index(tier)];
  constexpr int kPair = 2;
  const double rate = port(tier, kPair, at_tier.point_to_point);
  const FabricModel& fabric = at_tier.scale_up ? calibration_.inner : calibration_.network;
  return {at_tier.step + static_cast<double>(bytes.value) / rate, std::max(Evidence::fitted, fabric.evidence)};
}

Wire CostModel::transfer_wire(int tier, Bytes bytes) const {
  Wire wire;
  if (bytes.value <= 0) return wire;
  wire.latency = tiers_[index(tier)].step;
  wire.seconds = transfer(tier, bytes).seconds - wire.latency;
  wire.bytes_per_rank[index(tier)] = static_cast<double>(bytes.value);
  return wire;
}

Wire CostModel::boundary_wire(int tier, Bytes bytes, int parts, const GroupShape& group) const {
  if (parts <= 1) return transfer_wire(tier, bytes);
  Wire wire = transfer_wire(tier, Bytes((bytes.value + parts - 1) / parts));
  if (bytes.value > 0) wire.latency += collective(Collective::all_gather, group, DType::bf16, bytes).seconds;
  return wire;
}

double CostModel::port_rate(int tier) const {
  const FabricModel& fabric = tier == 0 ? calibration_.inner : calibration_.network;
  return tier_bandwidth(tier) * std::max({fabric.efficiency, fabric.all_to_all, fabric.point_to_point});
}

double CostModel::interference(const GroupShape& shape) const {
  const bool network = !tiers_[index(shape.tier())].scale_up;
  return 1 - (network ? calibration_.interference.network : calibration_.interference.inside);
}

} // namespace foretrain
