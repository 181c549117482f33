#include "core/program/ranks.h"

#include <algorithm>

#include "core/base/check.h"

namespace foretrain {
namespace {

constexpr std::size_t index(Group group) {
  return static_cast<std::size_t>(group);
}
constexpr std::size_t index(Axis axis) {
  return static_cast<std::size_t>(axis);
}

/// Members of a run that lie together in one group of `fanout` ranks. Where runs straddle a boundary the worst one
/// counts: the largest divisor of the extent whose span divides the fan-out.
int together(int extent, int stride, int fanout) {
  for (int part = extent; part > 1; --part)
    if (extent % part == 0 && part * stride <= fanout && fanout % (part * stride) == 0) return part;
  return 1;
}

} // namespace

Mesh::Mesh(const Layout& layout, std::vector<int> fanouts)
    : world_(layout.world()), ep_(layout.ep), etp_(layout.etp), fanouts_(std::move(fanouts)) {
  FORETRAIN_CHECK(fanouts_.size() <= 6, "a cluster has at most six tiers");
  degree_[index(Axis::tp)] = layout.tp;
  degree_[index(Axis::cp)] = layout.cp;
  degree_[index(Axis::dp)] = layout.dp();
  degree_[index(Axis::pp)] = layout.pp;
  int stride = 1;
  for (const Axis axis : layout.placement) {
    stride_[index(axis)] = stride;
    stride *= degree(axis);
  }

  const Run tp{layout.tp, this->stride(Axis::tp)};
  const Run cp{layout.cp, this->stride(Axis::cp)};
  const Run pp{layout.pp, this->stride(Axis::pp)};
  const int dp_stride = this->stride(Axis::dp);
  const Run shard{layout.dp_shard, dp_stride};
  const Run replicate{layout.dp_replicate, dp_stride * layout.dp_shard};
  const Run dp{layout.dp(), dp_stride};
  const int ulysses =
      layout.context_parallel.kind == ContextKind::ulysses_ring ? layout.context_parallel.ulysses : layout.cp;
  define(Group::tp, {tp});
  define(Group::cp, {cp});
  define(Group::cp_inner, {Run{ulysses, cp.stride}});
  define(Group::cp_outer, {Run{std::max(1, layout.cp / std::max(1, ulysses)), cp.stride * ulysses}});
  define(Group::pp, {pp});
  define(Group::data, {cp, dp});
  define(Group::shard, {cp, shard});
  define(Group::replicate, {replicate});
  define(Group::embedding, {Run{layout.pp > 1 ? 2 : 1, pp.stride * std::max(1, layout.pp - 1)}});
  define(Group::world, {Run{world_, 1}});

  const int per_stage = world_ / std::max(1, layout.pp);
  const int expert_data = std::max(1, per_stage / std::max(1, layout.ep * layout.etp));
  define(Group::etp, within_stage(1, layout.etp, layout.placement));
  define(Group::ep, within_stage(layout.etp, layout.ep, layout.placement));
  define(Group::ep_etp, within_stage(1, layout.ep * layout.etp, layout.placement));
  define(Group::expert_data, within_stage(layout.ep * layout.etp, expert_data, layout.placement));
  const int expert_shard = expert_data % layout.dp_replicate == 0 ? expert_data / layout.dp_replicate : expert_data;
  define(Group::expert_shard, within_stage(layout.ep * layout.etp, expert_shard, layout.placement));
}

/// Members start, start + 1·start … of the ranks of one stage, counted in placement order without the pipeline axis.
/// The pipeline axis may lie inside: then a run splits where its stride jumps.
Mesh::Runs Mesh::within_stage(int start, int length, const std::array<Axis, 4>& placement) const {
  int inner = 1; // ranks of a stage that are consecutive
  for (const Axis axis : placement) {
    if (axis == Axis::pp) break;
    inner *= degree(axis);
  }
  const int pp = degree(Axis::pp);
  Runs runs{};
  if (start >= inner) {
    runs[0] = Run{length, start * pp};
    return runs;
  }
  const int below = std::min(length, std::max(1, inner / start));
  runs[0] = Run{below, start};
  if (length > below) runs[1] = Run{length / below, inner * pp};
  return runs;
}

void Mesh::define(Group group, const Runs& runs) {
  GroupShape shape;
  shape.size = 1;
  std::array<int, 4> left{};
  std::array<int, 4> stride{};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    left[i] = runs[i].extent;
    stride[i] = runs[i].stride;
    shape.size *= runs[i].extent;
  }
  for (std::size_t tier = 0; tier < fanouts_.size(); ++tier) {
    const bool last = tier + 1 == fanouts_.size();
    int here = 1;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const int part = last ? left[i] : together(left[i], stride[i], fanouts_[tier]);
      here *= part;
      left[i] /= part;
      // What is left lies `stride` groups of this tier apart.
      stride[i] = std::max(1, stride[i] * part / fanouts_[tier]);
    }
    shape.per_tier[tier] = here;
  }
  runs_[index(group)] = runs;
  shapes_[index(group)] = shape;
}

std::vector<int> Mesh::members(Group group, int rank) const {
  const Runs& runs = runs_[index(group)];
  int base = rank;
  for (const Run& run : runs) {
    if (group == Group::embedding) continue;
    base -= rank / run.stride % run.extent * run.stride;
  }
  if (group == Group::embedding) base = on_stage(rank, 0);
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(shape(group).size));
  for (int d = 0; d < runs[3].extent; ++d)
    for (int c = 0; c < runs[2].extent; ++c)
      for (int b = 0; b < runs[1].extent; ++b)
        for (int a = 0; a < runs[0].extent; ++a)
          ranks.push_back(base + a * runs[0].stride + b * runs[1].stride + c * runs[2].stride + d * runs[3].stride);
  return ranks;
}

int Mesh::on_stage(int rank, int stage) const {
  return rank + (stage - coordinate(rank, Axis::pp)) * stride(Axis::pp);
}

int Mesh::tier_between(int a, int b) const {
  int span = 1;
  for (std::size_t tier = 0; tier < fanouts_.size(); ++tier) {
    span *= fanouts_[tier];
    if (a / span == b / span) return static_cast<int>(tier);
  }
  return static_cast<int>(fanouts_.empty() ? 0 : fanouts_.size() - 1);
}

} // namespace foretrain
