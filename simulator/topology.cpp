#include "simulator/topology.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/check.h"

namespace foretrain {
namespace {

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

} // namespace

ClusterSpec undisturbed(ClusterSpec cluster) {
  for (TierSpec& tier : cluster.tiers) {
    tier.oversubscription = 1;
    tier.background_load = 0;
  }
  return cluster;
}

Topology::Topology(const ClusterSpec& cluster, const Mesh& mesh, const World& world, const TierRates& rates)
    : mesh_(mesh), world_(world) {
  const int tiers = std::min(static_cast<int>(cluster.tiers.size()), kTiers);
  const auto free_share = [&](int tier) { return tier < tiers ? 1 - cluster.tiers[index(tier)].background_load : 1.0; };
  for (int s = 0; s < world.size(); ++s) {
    for (int port = 0; port < 2; ++port) {
      const double capacity = rates[index(port)] * free_share(port);
      const char* const where = port == 0 ? "node" : "network";
      add(fmt::format("rank {} to {}", world.rank[index(s)], where), capacity);
      add(fmt::format("rank {} from {}", world.rank[index(s)], where), capacity);
    }
  }

  int under = 1;
  const int node = cluster.tiers.empty() ? 1 : cluster.tiers.front().fanout;
  for (int tier = 0; tier < tiers; ++tier) {
    const TierSpec& spec = cluster.tiers[index(tier)];
    under *= spec.fanout;
    under_.push_back(under);
    rails_.push_back(tier > 0 && (spec.fabric == Fabric::rail || rails_[index(tier - 1)]));
    up_.emplace_back();
    if (tier == 0 || tier + 1 == tiers) continue;
    const int rails = rails_.back() ? node : 1;
    const int groups = (mesh.world() + under - 1) / under;
    std::vector<int> present(index(groups * rails), 0);
    std::vector<int> simulated(index(groups * rails), 0);
    const auto place = [&](int rank) { return index(rank / under * rails + (rails > 1 ? rank % node : 0)); };
    for (int rank = 0; rank < mesh.world(); ++rank) ++present[place(rank)];
    for (const int rank : world.rank) ++simulated[place(rank)];
    const double whole = rates[index(tier + 1)] * free_share(tier + 1) * under / rails / spec.oversubscription;
    up_.back().assign(present.size(), -1);
    for (std::size_t g = 0; g < present.size(); ++g) {
      if (simulated[g] == 0) continue;
      const double capacity = whole * simulated[g] / present[g];
      const std::string name = rails > 1 ? fmt::format("{} {} rail {}", spec.name, g / index(rails), g % index(rails))
                                         : fmt::format("{} {}", spec.name, g);
      up_.back()[g] = add(name + " up", capacity);
      add(name + " down", capacity);
    }
  }
}

int Topology::add(std::string name, double capacity) {
  links_.push_back({std::move(name), capacity});
  return static_cast<int>(links_.size()) - 1;
}

int Topology::uplink(int rank, int tier) const {
  const int node = under_.front();
  const bool rails = rails_[index(tier)];
  const int group = rank / under_[index(tier)] * (rails ? node : 1) + (rails ? rank % node : 0);
  return up_[index(tier)][index(group)];
}

void Topology::route(int from, int to, int tier, std::vector<int>& into) const {
  const auto out = [](int rank, std::size_t port) { return rank * 4 + static_cast<int>(port) * 2; };
  if (tier == 0) {
    into.push_back(out(from, 0));
    into.push_back(out(to, 0) + 1);
    return;
  }
  const int rank = world_.rank[index(from)];
  const int there = world_.rank[index(to)];
  int leaves = from; // the rank whose network port is used
  int leaves_rank = rank;
  if (rails_[index(std::min(tier, static_cast<int>(rails_.size()) - 1))]) {
    const int node = under_.front();
    const int same_rail = rank / node * node + there % node;
    if (same_rail != rank && same_rail < mesh_.world()) {
      leaves = world_.simulated[index(same_rail)];
      leaves_rank = world_.rank[index(leaves)];
      into.push_back(out(from, 0));
      into.push_back(out(leaves, 0) + 1);
    }
  }
  into.push_back(out(leaves, 1));
  const int last = std::min(tier, static_cast<int>(up_.size()));
  for (int level = 1; level < last; ++level) {
    const int up = uplink(leaves_rank, level);
    const int down = uplink(there, level);
    FORETRAIN_CHECK(up >= 0 && down >= 0, "a simulated rank has an uplink");
    into.push_back(up);
    into.push_back(down + 1);
  }
  into.push_back(out(to, 1) + 1);
}

bool Topology::detours() const {
  return std::find(rails_.begin(), rails_.end(), true) != rails_.end();
}

std::array<int, kTiers> Topology::neighbours(Group group, int simulated) const {
  std::array<int, kTiers> peers{};
  peers.fill(-1);
  const int rank = world_.rank[index(simulated)];
  const std::vector<int> members = mesh_.members(group, rank);
  const GroupShape& shape = mesh_.shape(group);
  const int size = static_cast<int>(members.size());
  const int own = static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
  int stride = 1;
  for (int tier = 0; tier < kTiers; ++tier) {
    const int count = shape.per_tier[index(tier)];
    if (count <= 1) continue;
    const int block = own / (stride * count) * (stride * count);
    int peer = members[index(std::min(block + (own - block + stride) % (stride * count), size - 1))];
    // Groups that are not nested evenly in the tiers: any member that is met at this tier.
    for (int step = 1; step < size && mesh_.tier_between(rank, peer) != tier; ++step)
      peer = members[index((own + step) % size)];
    peers[index(tier)] = world_.simulated[index(peer)];
    stride *= count;
  }
  return peers;
}

} // namespace foretrain
