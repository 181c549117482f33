#include "executor/communicators/gloo.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/base/check.h"
#include "executor/communicators/groups.h"

namespace foretrain {
namespace {

using at::Tensor;
using ProcessGroup = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using Work = decltype(std::declval<c10d::ProcessGroupGloo&>().barrier());

class GlooTransfer final : public Transfer {
public:
  explicit GlooTransfer(Work work) : work_(std::move(work)) {}
  void wait() override {
    if (!work_->wait()) throw std::runtime_error("a transfer was given up");
  }

private:
  Work work_;
};

/// Point-to-point is Gloo's own; so is all-reduce. All-gather and reduce-scatter send straight from and into the
/// tensors: Gloo's own all-gather takes twice its input, and older versions have no reduce-scatter.
class GlooCommunicator final : public Communicator {
public:
  struct Member {
    ProcessGroup group;
    int index = 0;
    int size = 1;
  };
  explicit GlooCommunicator(std::array<Member, kGroups> members) : members_(std::move(members)) {}

  void all_reduce(Group group, Tensor& tensor, Reduction reduction) override {
    // Older versions of Gloo add no half precision: it travels and is added in single precision.
    const bool half = tensor.scalar_type() == at::kBFloat16;
    std::vector<Tensor> tensors = {half ? tensor.to(at::kFloat) : tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = reduction == Reduction::sum ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    finish(member(group).group->allreduce(tensors, options));
    if (half) tensor.copy_(tensors.front());
  }

  void all_gather(Group group, const Tensor& share, Tensor& whole) override {
    const Member& me = member(group);
    std::vector<Work> works;
    const std::int64_t rows = share.size(0);
    for (int peer = 0; peer < me.size; ++peer)
      if (peer != me.index) works.push_back(receive(me, peer, whole.narrow(0, peer * rows, rows)));
    for (int peer = 0; peer < me.size; ++peer)
      if (peer != me.index) works.push_back(send(me, peer, share));
    Tensor own = whole.narrow(0, me.index * rows, rows);
    if (own.data_ptr() != share.data_ptr()) own.copy_(share);
    for (const Work& work : works) finish(work);
  }

  void reduce_scatter(Group group, const Tensor& whole, Tensor& share) override {
    const Member& me = member(group);
    const std::int64_t rows = share.size(0);
    std::vector<Tensor> parts(static_cast<std::size_t>(me.size));
    std::vector<Work> works;
    for (int peer = 0; peer < me.size; ++peer) {
      Tensor& part = parts[static_cast<std::size_t>(peer)];
      part = peer == me.index ? whole.narrow(0, peer * rows, rows) : at::empty_like(share);
      if (peer != me.index) works.push_back(receive(me, peer, part));
    }
    for (int peer = 0; peer < me.size; ++peer)
      if (peer != me.index) works.push_back(send(me, peer, whole.narrow(0, peer * rows, rows)));
    for (const Work& work : works) finish(work);
    // In the order of members; `share` may be this member's part of `whole`, so the sum grows where the first one came.
    Tensor& sum = parts.front();
    if (me.index == 0 && !share.is_alias_of(whole)) {
      share.copy_(sum);
      sum = share;
    }
    for (std::size_t i = 1; i < parts.size(); ++i) sum.add_(parts[i]);
    if (me.index > 0) share.copy_(sum);
  }

  std::unique_ptr<Transfer> start_send(Group group, int peer, const Tensor& tensor, int tag) override {
    return std::make_unique<GlooTransfer>(send(member(group), peer, tensor, tag));
  }
  std::unique_ptr<Transfer> start_receive(Group group, int peer, Tensor& tensor, int tag) override {
    return std::make_unique<GlooTransfer>(receive(member(group), peer, tensor, tag));
  }

  void barrier(Group group) override { finish(member(group).group->barrier()); }

private:
  const Member& member(Group group) const {
    const Member& found = members_[static_cast<std::size_t>(group)];
    FORETRAIN_CHECK(found.group, "only groups that the program uses are asked for");
    return found;
  }
  static Work send(const Member& me, int peer, const Tensor& tensor, int tag = 0) {
    std::vector<Tensor> tensors = {tensor};
    return me.group->send(tensors, peer, tag);
  }
  static Work receive(const Member& me, int peer, const Tensor& tensor, int tag = 0) {
    std::vector<Tensor> tensors = {tensor};
    return me.group->recv(tensors, peer, tag);
  }
  static void finish(const Work& work) {
    if (!work->wait()) throw std::runtime_error("a transfer was given up");
  }

  std::array<Member, kGroups> members_;
};

} // namespace

Result<std::unique_ptr<Communicator>> connect_gloo(const Program& program, int rank,
                                                   const c10::intrusive_ptr<c10d::Store>& store,
                                                   const GlooOptions& options) {
  const Role& role = program.roles[static_cast<std::size_t>(program.mesh.coordinate(rank, Axis::pp))];
  std::array<GlooCommunicator::Member, kGroups> members;
  try {
    for (const Group group : groups_of(program, role)) {
      const std::vector<int> ranks = program.mesh.members(group, rank);
      GlooCommunicator::Member& member = members[static_cast<std::size_t>(group)];
      member.size = static_cast<int>(ranks.size());
      member.index = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
      const std::string prefix =
          "group/" + std::to_string(static_cast<int>(group)) + "/" + std::to_string(ranks.front());
      auto settings = c10d::ProcessGroupGloo::Options::create(options.timeout);
      settings->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
      settings->threads = 2;
      member.group = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(prefix, store),
                                                                 member.index, member.size, settings);
    }
  } catch (const std::exception& error) {
    return fail_environment("rank " + std::to_string(rank),
                            std::string("cannot connect to the other ranks: ") + error.what(),
                            "all ranks must start within " + std::to_string(options.timeout.count() / 1000) +
                                " s and reach " + options.address);
  }
  return std::make_unique<GlooCommunicator>(std::move(members));
}

} // namespace foretrain
