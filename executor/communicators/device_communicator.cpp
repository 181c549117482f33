#include "executor/communicators/device_communicator.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "executor/communicators/groups.h"

namespace foretrain {
namespace {

using at::Tensor;

/// Transfers between stages in one direction and pass: from, to (members of the group), gradients?
using Lane = std::tuple<int, int, bool>;

ElementType type_of(const Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type(); // of many more
  if (type == at::kDouble) return ElementType::fp64;
  if (type == at::kFloat) return ElementType::fp32;
  if (type == at::kBFloat16) return ElementType::bf16;
  if (type == at::kHalf) return ElementType::fp16;
  if (type == at::kLong) return ElementType::int64;
  if (type == at::kChar) return ElementType::int8;
  throw std::runtime_error(std::string("no device moves elements of type ") + at::toString(type));
}

Elements elements_of(const Tensor& tensor) {
  FORETRAIN_CHECK(tensor.is_contiguous(), "what is moved as one lies in one piece");
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), type_of(tensor), !tensor.is_cuda(),
          std::make_shared<Tensor>(tensor)};
}

struct Member {
  int channel = -1;
  int index = 0;
  int size = 1;
};

/// Sends and receives of a group that go together.
struct Batch {
  struct Part {
    int tag = 0;
    DeviceLink::Part part;
  };
  std::vector<Part> parts;
  DeviceLink::Started started; ///< once issued
};

class DeviceCommunicator final : public Communicator {
public:
  DeviceCommunicator(std::unique_ptr<DeviceLink> link, std::array<Member, kGroups> members, std::map<Lane, int> lanes)
      : link_(std::move(link)), members_(members), lanes_(std::move(lanes)) {}

  void all_reduce(Group group, Tensor& tensor, Reduction reduction) override {
    flush(group);
    link_->all_reduce(member(group).channel, elements_of(tensor), reduction == Reduction::maximum)->wait();
  }

  void all_gather(Group group, const Tensor& share, Tensor& whole) override {
    flush(group);
    const Member& me = member(group);
    if (whole.is_contiguous()) {
      link_->all_gather(me.channel, elements_of(share), elements_of(whole))->wait();
      return;
    }
    const std::int64_t rows = share.size(0);
    std::vector<DeviceLink::Part> parts;
    for (int peer = 0; peer < me.size; ++peer) {
      if (peer == me.index) continue;
      parts.push_back({false, peer, elements_of(whole.narrow(0, peer * rows, rows))});
      parts.push_back({true, peer, elements_of(share)});
    }
    const auto started = link_->exchange(me.channel, parts);
    Tensor own = whole.narrow(0, me.index * rows, rows);
    if (own.data_ptr() != share.data_ptr()) own.copy_(share);
    started->wait();
  }

  void reduce_scatter(Group group, const Tensor& whole, Tensor& share) override {
    flush(group);
    const Member& me = member(group);
    if (whole.is_contiguous()) {
      link_->reduce_scatter(me.channel, elements_of(whole), elements_of(share))->wait();
      return;
    }
    const std::int64_t rows = share.size(0);
    std::vector<Tensor> terms;
    std::vector<DeviceLink::Part> parts;
    for (int peer = 0; peer < me.size; ++peer) {
      const Tensor part = whole.narrow(0, peer * rows, rows);
      terms.push_back(peer == me.index ? part.clone() : at::empty_like(share));
      if (peer == me.index) continue;
      parts.push_back({false, peer, elements_of(terms.back())});
      parts.push_back({true, peer, elements_of(part)});
    }
    link_->exchange(me.channel, parts)->wait();
    for (std::size_t i = 1; i < terms.size(); ++i) terms.front().add_(terms[i]);
    share.copy_(terms.front()); // only now: it may be a part of `whole`
  }

  std::unique_ptr<Transfer> start_send(Group group, int peer, const Tensor& tensor, int tag) override {
    return start(group, true, peer, tensor, tag);
  }
  std::unique_ptr<Transfer> start_receive(Group group, int peer, Tensor& tensor, int tag) override {
    return start(group, false, peer, tensor, tag);
  }

  void barrier(Group group) override {
    Tensor one = at::zeros({1}, at::kFloat); // the host's: the wait is on the host
    all_reduce(group, one, Reduction::sum);
  }

  void start_clock() override { link_->start_clock(); }
  [[nodiscard]] std::int64_t issued() const override { return link_->issued(); }
  [[nodiscard]] std::vector<TransferTime> take_times() override { return link_->take_times(); }
  void check() override { link_->check(); }

private:
  friend class BatchTransfer;

  [[nodiscard]] const Member& member(Group group) const {
    const Member& found = members_[static_cast<std::size_t>(group)];
    FORETRAIN_CHECK(found.size > 1, "only groups that the program uses are asked for");
    return found;
  }

  std::unique_ptr<Transfer> start(Group group, bool sends, int peer, const Tensor& tensor, int tag);

  /// Issues what was started of a group since the last time.
  void flush(Group group) {
    const std::shared_ptr<Batch> batch = std::exchange(batches_[group], nullptr);
    if (!batch) return;
    // The device knows no tags, only order.
    std::stable_sort(batch->parts.begin(), batch->parts.end(),
                     [](const Batch::Part& a, const Batch::Part& b) { return a.tag < b.tag; });
    std::vector<DeviceLink::Part> parts;
    for (Batch::Part& part : batch->parts) parts.push_back(std::move(part.part));
    batch->parts.clear();
    batch->started = link_->exchange(member(group).channel, parts);
  }

  std::unique_ptr<DeviceLink> link_;
  std::array<Member, kGroups> members_;
  std::map<Lane, int> lanes_;                       ///< channels
  std::map<Group, std::shared_ptr<Batch>> batches_; ///< started, not issued
};

/// Issues its batch when the first of it is waited for.
class BatchTransfer final : public Transfer {
public:
  BatchTransfer(DeviceCommunicator& communicator, Group group, std::shared_ptr<Batch> batch)
      : communicator_(communicator), group_(group), batch_(std::move(batch)) {}
  void wait() override {
    if (!batch_->started) communicator_.flush(group_);
    batch_->started->wait();
  }

private:
  DeviceCommunicator& communicator_;
  Group group_;
  std::shared_ptr<Batch> batch_;
};

std::unique_ptr<Transfer> DeviceCommunicator::start(Group group, bool sends, int peer, const Tensor& tensor, int tag) {
  if (group == Group::pp) {
    const int own = member(group).index;
    const auto found = lanes_.find(Lane{sends ? own : peer, sends ? peer : own, (tag & 1) != 0});
    FORETRAIN_CHECK(found != lanes_.end(), "stages send to their neighbours alone");
    return link_->exchange(found->second,
                           {{sends, own < peer ? 1 : 0, elements_of(tensor)}}); // a lane's lower end is 0
  }
  std::shared_ptr<Batch>& batch = batches_[group];
  if (!batch) batch = std::make_shared<Batch>();
  batch->parts.push_back({tag, {sends, peer, elements_of(tensor)}});
  return std::make_unique<BatchTransfer>(*this, group, batch);
}

std::vector<std::uint8_t> bytes_of_text(const std::string& text) {
  return {text.begin(), text.end()};
}

int open_channel(DeviceLink& link, c10d::Store& store, const std::string& key, int index, int size) {
  if (index == 0) store.set(key, bytes_of_text(link.make_id()));
  const std::vector<std::uint8_t> id = store.get(key);
  return link.open({id.begin(), id.end()}, index, size);
}

/// Lanes between neighbours that this member is an end of. All members open theirs in one order: each has two ends, so
/// the first that is not open yet has both waiting for it. Each moves a number at once: the first transfer connects two
/// devices and returns only when both have issued it, which a Program does not promise.
std::map<Lane, int> open_lanes(DeviceLink& link, c10d::Store& store, const std::string& prefix, const Member& me) {
  std::map<Lane, int> lanes;
  for (int from = 0; from < me.size; ++from)
    for (int to = 0; to < me.size; ++to) {
      const int distance = (to - from + me.size) % me.size;
      const bool neighbours = distance == 1 || distance == me.size - 1;
      if (!neighbours || (me.index != from && me.index != to)) continue;
      for (const bool gradients : {false, true}) {
        const std::string key =
            prefix + "/" + std::to_string(from) + "-" + std::to_string(to) + (gradients ? "b" : "f");
        const bool lower = me.index == std::min(from, to);
        const int channel = open_channel(link, store, key, lower ? 0 : 1, 2);
        link.exchange(channel, {{me.index == from, lower ? 1 : 0, elements_of(at::zeros({1}, at::kFloat))}})->wait();
        lanes[{from, to, gradients}] = channel;
      }
    }
  return lanes;
}

/// Several ranks on one device need to be told so before they meet.
void find_shared_devices(DeviceLink& link, c10d::Store& store, int rank, int world) {
  const auto key = [](int number) { return "device/" + std::to_string(number); };
  store.set(key(rank), bytes_of_text(link.place()));
  std::vector<std::vector<std::uint8_t>> places;
  for (int other = 0; other < world; ++other) places.push_back(store.get(key(other)));
  std::sort(places.begin(), places.end());
  if (std::adjacent_find(places.begin(), places.end()) != places.end()) link.share_device(rank);
}

} // namespace

Result<std::unique_ptr<Communicator>> connect_devices(const Program& program, int rank,
                                                      const c10::intrusive_ptr<c10d::Store>& store,
                                                      std::unique_ptr<DeviceLink> link) {
  const Role& role = program.roles[static_cast<std::size_t>(program.mesh.coordinate(rank, Axis::pp))];
  std::array<Member, kGroups> members;
  std::map<Lane, int> lanes;
  try {
    find_shared_devices(*link, *store, rank, program.mesh.world());
    for (const Group group : groups_of(program, role)) {
      const std::vector<int> ranks = program.mesh.members(group, rank);
      Member& member = members[static_cast<std::size_t>(group)];
      member.size = static_cast<int>(ranks.size());
      member.index = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
      const std::string key =
          "channel/" + std::to_string(static_cast<int>(group)) + "/" + std::to_string(ranks.front());
      member.channel = open_channel(*link, *store, key, member.index, member.size);
      if (group == Group::pp) lanes = open_lanes(*link, *store, key, member);
    }
  } catch (const std::exception& error) {
    return fail_environment("rank " + std::to_string(rank),
                            std::string("cannot connect to the other ranks' devices: ") + error.what());
  }
  return std::make_unique<DeviceCommunicator>(std::move(link), members, std::move(lanes));
}

} // namespace foretrain
