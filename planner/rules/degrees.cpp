#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "planner/rules/all.h"

namespace foretrain {
namespace {

/// tp · pp · cp · dp, at most 2^62: degrees come from readers, and a clash is reported as a clash.
std::int64_t world_of(const Layout& l) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  std::int64_t product = 1;
  for (const int degree : {l.tp, l.pp, l.cp, l.dp_shard, l.dp_replicate})
    if (__builtin_mul_overflow(product, std::int64_t{degree}, &product)) return kHuge;
  return product;
}

std::optional<Rejection> world_size(const RuleInput& in) {
  const Layout& l = in.layout;
  const std::int64_t world = world_of(l);
  if (world == in.devices) return std::nullopt;
  const std::int64_t model = std::int64_t{l.tp} * l.pp * l.cp;
  std::vector<std::string> nearest;
  if (in.devices % model == 0) nearest.push_back(fmt::format("dp {}", in.devices / model));
  // Else the nearest degree of one axis with which dp can fill the cluster.
  for (const auto& [name, degree] : {std::pair{"pp", l.pp}, {"tp", l.tp}, {"cp", l.cp}}) {
    if (!nearest.empty()) break;
    const std::int64_t rest = model / degree;
    if (rest > in.devices || in.devices % rest != 0) continue;
    const std::int64_t largest = in.devices / rest;
    std::int64_t value = std::min<std::int64_t>(degree, largest);
    while (largest % value != 0) --value;
    nearest.push_back(fmt::format("{} {}, dp {}", name, value, largest / value));
  }
  if (nearest.empty()) nearest.push_back(fmt::format("tp 1, pp 1, cp 1, dp {}", in.devices));
  return reject(fmt::format("tp {} × pp {} × cp {} × dp {} = {} ranks, the cluster has {} devices", l.tp, l.pp, l.cp,
                            std::int64_t{l.dp_shard} * l.dp_replicate, world, in.devices),
                static_cast<double>(world), in.devices, std::move(nearest));
}

std::optional<Rejection> batch(const RuleInput& in) {
  const Layout& l = in.layout;
  const std::int64_t dp = std::int64_t{l.dp_shard} * l.dp_replicate;
  const std::int64_t step = dp * l.micro_batch;
  if (step > 0 && in.job.global_batch % step == 0) return std::nullopt;
  std::vector<std::string> nearest;
  if (dp > 0 && in.job.global_batch % dp == 0)
    nearest = nearest_values("micro_batch", l.micro_batch, in.job.global_batch / dp,
                             [&](std::int64_t b) { return in.job.global_batch % (dp * b) == 0; });
  const std::int64_t lower = in.job.global_batch / step * step;
  if (lower > 0) nearest.push_back(fmt::format("global_batch {}", lower));
  nearest.push_back(fmt::format("global_batch {}", lower + step));
  return reject(fmt::format("global batch {} is not a multiple of dp {} × micro-batch {} = {}", in.job.global_batch, dp,
                            l.micro_batch, step),
                static_cast<double>(step), static_cast<double>(in.job.global_batch), std::move(nearest));
}

/// Whatever the micro-batch.
std::optional<Rejection> batch_over_dp(const RuleInput& in) {
  const std::int64_t dp = std::int64_t{in.layout.dp_shard} * in.layout.dp_replicate;
  return in.job.global_batch % dp != 0 ? batch(in) : std::nullopt;
}

} // namespace

void add_degree_rules(RuleList& list) {
  list.push_back(
      make_rule("world-size", "tp · pp · cp · dp equals the number of devices.", world_size, RuleScope::degrees));
  list.push_back(make_rule("global-batch", "The global batch is a multiple of dp · micro-batch.", batch,
                           RuleScope::micro_batch, batch_over_dp));
}

} // namespace foretrain
