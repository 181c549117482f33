#pragma once

#include <array>
#include <initializer_list>
#include <random>

#include "tests/cases/cases.h"

namespace foretrain::cases {

/// Numbers that the readers admit: degrees up to a million whose product is at most a million devices.
inline Layout random_layout(std::mt19937& random) {
  const auto pick = [&random](std::initializer_list<int> values) {
    return *(values.begin() +
             std::uniform_int_distribution<std::ptrdiff_t>(0, static_cast<std::ptrdiff_t>(values.size()) - 1)(random));
  };
  Layout l;
  do {
    l.tp = pick({1, 1, 2, 3, 7, 8, 64, 1000, 999'983, 1'000'000});
    l.pp = pick({1, 1, 2, 5, 8, 512, 1'000'000});
    l.cp = pick({1, 1, 2, 3, 16, 1'000'000});
    l.dp_shard = pick({1, 1, 2, 13, 64, 4096, 1'000'000});
    l.dp_replicate = pick({1, 1, 2, 17});
  } while (static_cast<double>(l.tp) * l.pp * l.cp * l.dp_shard * l.dp_replicate > 1e6);
  do {
    l.ep = pick({1, 1, 2, 3, 8, 128, 100'000});
    l.etp = pick({1, 1, 2, 5, 1'000'000});
  } while (static_cast<double>(l.ep) * l.etp > 1e6);
  l.micro_batch = pick({1, 1, 2, 3, 1'000'000});
  l.sequence_parallel = pick({0, 1}) == 1;
  const std::array<const char*, 8> kinds = {"gpipe", "1f1b",  "interleaved", "zb-h1",
                                            "zb-h2", "zb-1p", "zb-2p",       "dualpipe"};
  l.schedule.kind = kinds[static_cast<std::size_t>(pick({0, 1, 2, 3, 4, 5, 6, 7}))];
  l.schedule.chunks = pick({1, 1, 2, 3, 10'000});
  if (l.schedule.kind == "interleaved") l.schedule.group = pick({0, 0, 1, 5, 8, 9, 513, 1'000'000});
  l.sharding.kind = static_cast<ShardingKind>(pick({0, 1, 2, 3}));
  l.context_parallel.kind = static_cast<ContextKind>(pick({0, 1, 2, 3}));
  l.context_parallel.ulysses = pick({1, 2, 3, 1'000'000});
  l.expert_dispatch.kind = static_cast<DispatchKind>(pick({0, 1, 2}));
  l.recompute.kind = static_cast<RecomputeKind>(pick({0, 1, 2}));
  if (l.recompute.kind == RecomputeKind::full && pick({0, 1}) == 1) l.recompute.count = pick({1, 2, 100'000});
  if (l.recompute.kind == RecomputeKind::selective)
    for (int module = 0; module < 6; ++module)
      if (pick({0, 1}) == 1) l.recompute.modules.push_back(static_cast<RecomputeModule>(module));
  l.offload.optimizer = pick({0, 0, 1}) == 1;
  l.overlap.p2p = pick({0, 1}) == 1;
  l.overlap.tp = pick({0, 0, 0, 1}) == 1;
  l.overlap.moe = pick({0, 0, 0, 1}) == 1;
  if (pick({0, 0, 0, 1}) == 1) l.layers_per_stage = {100'000, 0, 1};
  return l;
}

} // namespace foretrain::cases
