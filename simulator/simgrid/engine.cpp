// The one file that includes SimGrid. What is used of it, and why in this way: docs/simulators.md, "SimGrid".
#include "simulator/simgrid/engine.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/kernel/routing/NetPoint.hpp>
#include <simgrid/kernel/routing/NetZoneImpl.hpp>
#include <simgrid/s4u.hpp>
#include <simgrid/version.h>

#include "core/program/names.h"

namespace foretrain {
namespace {

namespace s4u = simgrid::s4u;
using LinkImpl = simgrid::kernel::resource::StandardLinkImpl;

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

#if SIMGRID_VERSION >= 40000
using CompletedComm = s4u::Comm;
s4u::Host* add_host(s4u::NetZone& zone, const std::string& name) {
  return zone.add_host(name, 1.0);
}
s4u::Link* add_link(s4u::NetZone& zone, const std::string& name, double rate) {
  return zone.add_link(name, rate);
}
void start_comm(s4u::Comm& comm) {
  comm.start();
}
void attach(s4u::Engine& engine, simgrid::kernel::routing::NetZoneImpl& zone) {
  zone.set_parent(engine.get_netzone_root()->get_impl());
}
#else
using CompletedComm = s4u::Activity;
s4u::Host* add_host(s4u::NetZone& zone, const std::string& name) {
  return zone.create_host(name, 1.0);
}
s4u::Link* add_link(s4u::NetZone& zone, const std::string& name, double rate) {
  return zone.create_link(name, rate);
}
void start_comm(s4u::Comm& comm) {
  comm.vetoable_start();
}
void attach(s4u::Engine& /*engine*/, simgrid::kernel::routing::NetZoneImpl& /*zone*/) {} // the first zone is the root
#endif

/// A zone without tables: the flow about to start has left its route here.
class RouteZone final : public simgrid::kernel::routing::NetZoneImpl {
public:
  explicit RouteZone(const std::string& name) : NetZoneImpl(name) {}
  void get_local_route(const simgrid::kernel::routing::NetPoint* /*from*/,
                       const simgrid::kernel::routing::NetPoint* /*to*/, simgrid::kernel::routing::Route* into,
                       double* /*latency*/) override {
    into->link_list_.insert(into->link_list_.end(), next.begin(), next.end());
  }
  std::vector<LinkImpl*> next;
};

class SimGridNetwork final : public Network {
public:
  SimGridNetwork(const Script& script, const World& world, const Topology& topology)
      : world_(world), topology_(topology), engine_(make_engine()), zone_(new RouteZone("cluster")) {
    attach(*engine_, *zone_); // the engine deletes it
    s4u::NetZone& zone = *zone_->get_iface();
    for (const int rank : world.rank) hosts_.push_back(add_host(zone, fmt::format("rank-{}", rank)));
    for (const NetworkLink& link : topology.links()) {
      // A link that no transfer uses may have no rate.
      s4u::Link* const made = add_link(zone, link.name, std::max(link.capacity, 1.0));
      made->set_latency(0.0)->seal();
      links_.push_back(made->get_impl());
    }
    loads_.assign(links_.size(), 0.0);
    find_carrying_lanes(script);
    add_caps(zone);
    zone_->seal();
    // Other transfers of a rank do not use a port that one lane alone uses, unless rails send detours through it.
    std::array<bool, 2> exclusive = exclusive_ports(script);
    node_port_exclusive_ = exclusive[0] && !topology.detours();
    CompletedComm::on_completion_cb([this](const CompletedComm& comm) { finished(comm); });
  }
  // The engine's signals hold a reference to this.
  SimGridNetwork(const SimGridNetwork&) = delete;
  SimGridNetwork& operator=(const SimGridNetwork&) = delete;

  [[nodiscard]] double now() const override { return s4u::Engine::get_clock(); }

  void call_at(double when, std::uint64_t token) override {
    simgrid::kernel::timer::Timer::set(std::max(when, now()), [this, token] { client_->on_time(token); });
  }

  void start(const TransferRequest& request) override {
    if (index(request.id) >= transfers_.size()) transfers_.resize(index(request.id) + 1);
    const Wire& wire = request.traffic->wire;
    const auto on_network = [](double bytes) { return bytes > 0; };
    const bool in_node = std::none_of(wire.bytes_per_rank.begin() + 1, wire.bytes_per_rank.end(), on_network);
    Running& running = transfers_[index(request.id)];
    running.request = request;
    running.flows = 0;
    running.started = running.updated = now();
    running.pace = 1;
    running.timed = true;
    running.whole = wire.seconds <= 0 || (in_node && (node_port_exclusive_ || wire.bytes_per_rank[0] <= 0));
    // Latency is paid by a timer: links with latency would get unequal shares.
    running.left = running.whole ? request.traffic->duration() : wire.latency;
    schedule(request.id);
  }

  void set_pace(int transfer, double pace) override {
    Running& running = transfers_[index(transfer)];
    if (running.timed) {
      running.left = std::max(0.0, running.left - (now() - running.updated) * running.pace);
      running.updated = now();
      running.pace = pace;
      schedule(transfer);
      return;
    }
    running.pace = pace;
    for (const Cap& cap : running.caps) cap.link->set_bandwidth(cap.rate * pace);
  }

  void run(NetworkClient& client) override {
    client_ = &client;
    engine_->run();
    trash_.clear();
  }

  void report(Simulation& out) const {
    const double step = out.step_time.value;
    for (std::size_t link = 0; link < loads_.size(); ++link) {
      const NetworkLink& spec = topology_.links()[link];
      if (loads_[link] > 0 && step > 0)
        out.links.push_back({spec.name, loads_[link], loads_[link] / spec.capacity / step});
    }
    std::stable_sort(out.links.begin(), out.links.end(),
                     [](const LinkLoad& a, const LinkLoad& b) { return a.utilisation > b.utilisation; });
    constexpr std::size_t kShownLinks = 16;
    if (out.links.size() > kShownLinks) out.links.resize(kShownLinks);
    for (int g = 0; g <= kGroups; ++g) {
      GroupLoad load = groups_[index(g)];
      load.name = g == kGroups ? "pipeline" : words_of(id_of(static_cast<Group>(g)));
      if (load.transfers > 0) out.groups.push_back(std::move(load));
    }
  }

private:
  /// A flow's cap and its rate at full pace.
  struct Cap {
    s4u::Link* link = nullptr;
    double rate = 0;
  };

  struct Running {
    TransferRequest request;
    int flows = 0; ///< still running
    double started = 0;
    double pace = 1;
    bool timed = true;  ///< in its latency, or undisturbed to its end
    bool whole = false; ///< timed to its end
    double left = 0;    ///< timed: seconds at full pace, at `updated`
    double updated = 0;
    std::uint32_t version = 0;
    std::vector<Cap> caps;
  };

  void schedule(int id) {
    Running& running = transfers_[index(id)];
    const std::uint32_t version = ++running.version;
    simgrid::kernel::timer::Timer::set(now() + running.left / running.pace, [this, id, version] {
      const Running& due = transfers_[index(id)];
      if (due.version != version) return;
      if (due.whole)
        end(id);
      else
        begin(id);
    });
  }

  static std::unique_ptr<s4u::Engine> make_engine() {
    // Only what matters is said, and not on stdout, which carries replies.
    static std::array<char, 16> program{"foretrain"};
    static std::array<char, 32> log{"--log=root.thres:critical"};
    static std::array<char*, 3> arguments{program.data(), log.data(), nullptr};
    int count = 2;
    auto engine = std::make_unique<s4u::Engine>(&count, arguments.data());
    s4u::Engine::set_config("network/model:CM02");      // no factors on bandwidth and latency
    s4u::Engine::set_config("network/crosstraffic:0");  // links are full duplex
    s4u::Engine::set_config("network/TCP-gamma:1e300"); // no window
    return engine;
  }

  /// Lanes that carry flows, per tier: each gets cap links.
  void find_carrying_lanes(const Script& script) {
    const auto use = [&](Lane lane, int traffic) {
      const Wire& wire = script.traffic[index(traffic)].wire;
      for (int tier = 0; tier < kTiers; ++tier)
        if (wire.bytes_per_rank[index(tier)] > 0) carries_[at(lane)][index(tier)] = true;
    };
    for (const ScriptSlot& slot : script.slots)
      for (const ScriptStep& step : slot.steps)
        if (step.wire >= 0) use(step.lane, step.wire);
    for (const RoleScript& role : script.roles)
      for (const ScriptInstruction& instruction : role.instructions)
        if (instruction.wire >= 0) use(script.slots[index(instruction.slot)].steps.front().lane, instruction.wire);
  }

  /// A flow's cap is a private link without sharing: SimGrid ignores the rate of host-to-host transfers. A lane of a
  /// rank has one transfer at a time, so it needs one such link per tier.
  void add_caps(s4u::NetZone& zone) {
    caps_.assign(world_.rank.size() * kLanes * kTiers, nullptr);
    for (int s = 0; s < world_.size(); ++s)
      for (int lane = 0; lane < kLanes; ++lane)
        for (int tier = 0; tier < kTiers; ++tier) {
          if (!carries_[index(lane)][index(tier)]) continue;
          s4u::Link* const cap = add_link(zone, fmt::format("cap-{}-{}-{}", s, lane, tier), 1.0);
          cap->set_latency(0.0)->set_sharing_policy(s4u::Link::SharingPolicy::FATPIPE)->seal();
          caps_[(index(s) * kLanes + index(lane)) * kTiers + index(tier)] = cap;
        }
  }

  void begin(int id) {
    trash_.clear();
    transfers_[index(id)].timed = false;
    transfers_[index(id)].caps.clear();
    const TransferRequest request = transfers_[index(id)].request;
    const Wire& wire = request.traffic->wire;
    for (int tier = 0; tier < kTiers; ++tier) {
      if (wire.bytes_per_rank[index(tier)] <= 0) continue;
      if (request.instance < 0) {
        flow(id, request.from, request.to, tier, request.lane, wire);
        continue;
      }
      const World::Instance& instance = world_.instances[index(request.instance)];
      for (const int member : instance.members) {
        const int peer = peer_of(member, instance.group, tier);
        if (peer >= 0) flow(id, member, peer, tier, request.lane, wire);
      }
    }
    // Nobody sends across the tiers that the wire names: as long as it would last undisturbed.
    Running& running = transfers_[index(id)];
    if (running.flows > 0) return;
    running.timed = running.whole = true;
    running.left = wire.seconds;
    running.updated = now();
    schedule(id);
  }

  void flow(int id, int from, int to, int tier, Lane lane, const Wire& wire) {
    const double bytes = wire.bytes_per_rank[index(tier)];
    s4u::Link* const cap = caps_[(index(from) * kLanes + at(lane)) * kTiers + index(tier)];
    const double rate = wire.rate_cap(tier);
    if (cap->get_bandwidth() != rate) cap->set_bandwidth(rate);
    route_.clear();
    topology_.route(from, to, tier, route_);
    zone_->next.clear();
    for (const int link : route_) {
      zone_->next.push_back(links_[index(link)]);
      loads_[index(link)] += bytes;
    }
    zone_->next.push_back(cap->get_impl());
    const s4u::CommPtr comm = s4u::Comm::sendto_init(hosts_[index(from)], hosts_[index(to)]);
    comm->set_payload_size(static_cast<std::uint64_t>(std::max(1.0, std::round(bytes))));
    const int number = take_flow();
    flows_[index(number)] = {comm, id};
    comm->set_data(reinterpret_cast<void*>(static_cast<std::uintptr_t>(number) + 1));
    ++transfers_[index(id)].flows;
    transfers_[index(id)].caps.push_back({cap, rate});
    start_comm(*comm);
    // The route's least bandwidth at the start also bounds the flow for good, so it starts at full pace.
    if (transfers_[index(id)].pace != 1) cap->set_bandwidth(rate * transfers_[index(id)].pace);
  }

  int take_flow() {
    if (free_.empty()) {
      flows_.emplace_back();
      return static_cast<int>(flows_.size()) - 1;
    }
    const int number = free_.back();
    free_.pop_back();
    return number;
  }

  void finished(const CompletedComm& comm) {
    const auto number = static_cast<int>(reinterpret_cast<std::uintptr_t>(comm.get_data<void>()) - 1);
    const int id = flows_[index(number)].second;
    // Releasing the last reference inside its own callback would be use after free.
    trash_.push_back(std::move(flows_[index(number)].first));
    free_.push_back(number);
    if (--transfers_[index(id)].flows == 0) end(id);
  }

  void end(int id) {
    Running& running = transfers_[index(id)];
    ++running.version;
    running.caps.clear();
    const int group = running.request.instance < 0
                          ? kGroups
                          : static_cast<int>(world_.instances[index(running.request.instance)].group);
    GroupLoad& load = groups_[index(group)];
    ++load.transfers;
    load.seconds += now() - running.started;
    load.undisturbed += running.request.traffic->duration();
    client_->on_finished(id);
  }

  int peer_of(int member, Group group, int tier) {
    auto& known = peers_[static_cast<std::size_t>(group)];
    if (known.empty()) known.resize(world_.rank.size());
    auto& peers = known[index(member)];
    if (peers.empty()) {
      const std::array<int, kTiers> found = topology_.neighbours(group, member);
      peers.assign(found.begin(), found.end());
    }
    return peers[index(tier)];
  }

  const World& world_;
  const Topology& topology_;
  std::unique_ptr<s4u::Engine> engine_;
  RouteZone* zone_;
  NetworkClient* client_ = nullptr;
  std::vector<s4u::Host*> hosts_;
  std::vector<LinkImpl*> links_;
  std::vector<double> loads_;
  std::vector<s4u::Link*> caps_;
  std::array<std::array<bool, kTiers>, kLanes> carries_{};
  bool node_port_exclusive_ = false;
  std::vector<Running> transfers_;
  std::vector<std::pair<s4u::CommPtr, int>> flows_; ///< with the transfer of each
  std::vector<int> free_;
  std::vector<s4u::CommPtr> trash_;
  std::array<std::vector<std::vector<int>>, kGroups> peers_;
  std::array<GroupLoad, kGroups + 1> groups_{};
  std::vector<int> route_;
};

} // namespace

Result<Simulation> run_on_simgrid(const Script& script, const World& world, const Topology& topology,
                                  MachineOptions options) {
  SimGridNetwork network(script, world, topology);
  FORETRAIN_TRY(const MachineRun run, run_machine(script, world, network, options));
  Simulation out = summarise(script, run);
  network.report(out);
  return out;
}

std::string simgrid_version() {
  return fmt::format("{}.{}", SIMGRID_VERSION_MAJOR, SIMGRID_VERSION_MINOR);
}

} // namespace foretrain
