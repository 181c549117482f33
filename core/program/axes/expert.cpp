#include "core/program/axes/expert.h"

#include <algorithm>
#include <cmath>

namespace foretrain::expert {
namespace {

int move(BlockBuilder& b, int rows, const std::string& name, bool forward) {
  const LayerContext& c = b.context();
  const Sizes s = sizes_of(c);
  const std::int64_t h = c.model->hidden;
  const int ep = c.layout.ep;
  const int etp = c.layout.etp;
  if (ep * etp == 1) return rows;
  const std::int64_t target_rows = forward ? s.received : s.sent;
  const int arrived = b.temporary(name, {target_rows, h});
  if (c.layout.expert_dispatch.kind == DispatchKind::all_gather) {
    // Every rank of the group sees all tokens of the group, and keeps the rows of its experts.
    const Bytes whole(s.tokens * h * c.width * ep * etp);
    b.collective(forward ? Collective::all_gather : Collective::reduce_scatter, Group::ep_etp, whole, {rows},
                 {arrived});
    return arrived;
  }
  const std::int64_t exchanged_rows = s.received / etp;
  if (forward) {
    const int exchanged = etp == 1 ? arrived : b.temporary(name + ".exchanged", {exchanged_rows, h});
    if (ep > 1) {
      Op& op = b.collective(Collective::all_to_all, Group::ep, Bytes(s.sent * h * c.width), {rows}, {exchanged});
      if (c.layout.expert_dispatch.kind == DispatchKind::deduplicated) op.deduplicated = c.model->moe->top_k;
    }
    if (etp > 1)
      b.collective(Collective::all_gather, Group::etp, Bytes(s.received * h * c.width), {ep > 1 ? exchanged : rows},
                   {arrived});
    return arrived;
  }
  int reduced = rows;
  if (etp > 1) {
    reduced = ep > 1 ? b.temporary(name + ".reduced", {exchanged_rows, h}) : arrived;
    b.collective(Collective::reduce_scatter, Group::etp, Bytes(s.received * h * c.width), {rows}, {reduced});
  }
  if (ep > 1) {
    Op& op = b.collective(Collective::all_to_all, Group::ep, Bytes(s.sent * h * c.width), {reduced}, {arrived});
    if (c.layout.expert_dispatch.kind == DispatchKind::deduplicated) op.deduplicated = c.model->moe->top_k;
  }
  return arrived;
}

} // namespace

Sizes sizes_of(const LayerContext& c) {
  const MoeSpec& moe = *c.model->moe;
  Sizes s;
  s.tokens = c.tokens_sp;
  s.experts = std::max(1, moe.experts / c.layout.ep);
  s.width = moe.ffn / c.layout.etp;
  const double imbalance = c.job->routing.kind == RoutingKind::imbalanced ? c.job->routing.imbalance : 1;
  const auto tokens = static_cast<double>(s.tokens);
  if (const auto factor = c.job->routing.capacity_factor) {
    // Padded to capacity: every expert gets ceil(t·k·cf / E) rows from each rank.
    const auto capacity = static_cast<std::int64_t>(std::ceil(tokens * moe.top_k * *factor / moe.experts));
    s.sent = capacity * moe.experts;
    s.received = capacity * s.experts * c.layout.ep * c.layout.etp;
  } else {
    s.sent = s.tokens * moe.top_k;
    s.received = static_cast<std::int64_t>(std::llround(tokens * moe.top_k * imbalance)) * c.layout.etp;
  }
  return s;
}

int dispatch(BlockBuilder& b, int rows, const std::string& name) {
  return move(b, rows, name, true);
}
int combine(BlockBuilder& b, int rows, const std::string& name) {
  return move(b, rows, name, false);
}

bool needs_host_counts(const LayerContext& c) {
  return c.layout.ep > 1 && !c.job->routing.capacity_factor &&
         c.layout.expert_dispatch.kind == DispatchKind::all_to_all;
}

} // namespace foretrain::expert
