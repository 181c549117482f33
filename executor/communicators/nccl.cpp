#include "executor/communicators/nccl.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "core/base/check.h"
#include "executor/communicators/groups.h"
#include "executor/communicators/nccl_queue.h"

namespace foretrain {
namespace {

using at::Tensor;
using Queue = std::unique_ptr<NcclQueue>;

/// Transfers between stages in one direction and pass: from, to (indices into the group), gradients?
using Lane = std::tuple<int, int, bool>;

ncclDataType_t type_of(const Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return ncclFloat;
  if (tensor.scalar_type() == at::kDouble) return ncclDouble;
  if (tensor.scalar_type() == at::kBFloat16) return ncclBfloat16;
  if (tensor.scalar_type() == at::kHalf) return ncclHalf;
  if (tensor.scalar_type() == at::kLong) return ncclInt64;
  if (tensor.scalar_type() == at::kChar) return ncclInt8;
  throw std::runtime_error("a tensor of a type that NCCL does not move");
}

std::size_t count(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

struct Member {
  int index = 0;
  int size = 1;
  Queue queue;
};

/// A started transfer: compute waits for its event on the device.
class EventTransfer final : public Transfer {
public:
  EventTransfer(std::shared_ptr<CudaEvent> event, cudaStream_t compute) : event_(std::move(event)), compute_(compute) {}
  void wait() override { event_->block(compute_); }

private:
  std::shared_ptr<CudaEvent> event_;
  cudaStream_t compute_;
};

/// Sends and receives of a group that were started together. NCCL must get them as one: in one queue a send that waits
/// for the other side's receive would hold up the receive that the other side's send waits for.
struct Batch {
  struct Part {
    bool sends = false;
    int peer = 0;
    Tensor tensor;
  };
  std::vector<Part> parts;
  std::shared_ptr<CudaEvent> event; ///< once issued
};

class NcclCommunicator final : public Communicator {
public:
  NcclCommunicator(std::array<Member, kGroups> members, std::map<Lane, Queue> lanes, NcclOptions options)
      : members_(std::move(members)), lanes_(std::move(lanes)), options_(options) {}

  void all_reduce(Group group, Tensor& tensor, Reduction reduction) override {
    const ncclRedOp_t how = reduction == Reduction::sum ? ncclSum : ncclMax;
    run(group, {tensor}, "all-reduce", [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclAllReduce(tensor.data_ptr(), tensor.data_ptr(), count(tensor), type_of(tensor), how, communicator,
                           stream);
    });
  }

  void all_gather(Group group, const Tensor& share, Tensor& whole) override {
    run(group, {share, whole}, "all-gather", [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclAllGather(share.data_ptr(), whole.data_ptr(), count(share), type_of(share), communicator, stream);
    });
  }

  void reduce_scatter(Group group, const Tensor& whole, Tensor& share) override {
    run(group, {whole, share}, "reduce-scatter", [&](ncclComm_t communicator, cudaStream_t stream) {
      return ncclReduceScatter(whole.data_ptr(), share.data_ptr(), count(share), type_of(share), ncclSum, communicator,
                               stream);
    });
  }

  std::unique_ptr<Transfer> start_send(Group group, int peer, const Tensor& tensor, int tag) override {
    if (group != Group::pp) return add(group, {true, peer, tensor});
    const int own = member(group).index;
    return issue(lane({own, peer, (tag & 1) != 0}), tensor, "send",
                 [&](ncclComm_t communicator, cudaStream_t stream) {
                   return ncclSend(tensor.data_ptr(), count(tensor), type_of(tensor), own < peer ? 1 : 0, communicator,
                                   stream); // the lower index is 0 in a lane
                 });
  }

  std::unique_ptr<Transfer> start_receive(Group group, int peer, Tensor& tensor, int tag) override {
    if (group != Group::pp) return add(group, {false, peer, tensor});
    const int own = member(group).index;
    return issue(lane({peer, own, (tag & 1) != 0}), tensor, "receive",
                 [&](ncclComm_t communicator, cudaStream_t stream) {
                   return ncclRecv(tensor.data_ptr(), count(tensor), type_of(tensor), own < peer ? 1 : 0, communicator,
                                   stream);
                 });
  }

  void barrier(Group group) override {
    Tensor one = at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, options_.device));
    all_reduce(group, one, Reduction::sum);
    member(group).queue->finish(options_.timeout, "barrier");
    for (auto& [key, queue] : lanes_) queue->finish(options_.timeout, "transfers between stages");
  }

private:
  friend class BatchTransfer;

  Member& member(Group group) {
    Member& found = members_[static_cast<std::size_t>(group)];
    FORETRAIN_CHECK(found.size > 1, "only groups that the program uses are asked for");
    return found;
  }
  NcclQueue& lane(const Lane& key) {
    const auto found = lanes_.find(key);
    FORETRAIN_CHECK(found != lanes_.end(), "stages send to their neighbours alone");
    return *found->second;
  }

  void run(Group group, std::vector<Tensor> tensors, const char* what, const NcclQueue::Operation& operation) {
    flush(group);
    member(group).queue->issue(options_.compute, std::move(tensors), operation, what)->block(options_.compute);
  }
  std::unique_ptr<Transfer> issue(NcclQueue& queue, const Tensor& tensor, const char* what,
                                  const NcclQueue::Operation& operation) {
    return std::make_unique<EventTransfer>(queue.issue(options_.compute, {tensor}, operation, what), options_.compute);
  }

  std::unique_ptr<Transfer> add(Group group, Batch::Part part);

  /// Issues what was started of a group since the last time, as one.
  void flush(Group group) {
    std::shared_ptr<Batch>& batch = batches_[group];
    if (!batch) return;
    std::vector<Tensor> tensors;
    for (const Batch::Part& part : batch->parts) tensors.push_back(part.tensor);
    const auto all = [&batch](ncclComm_t communicator, cudaStream_t stream) {
      ncclResult_t result = ncclGroupStart();
      for (const Batch::Part& part : batch->parts) {
        if (result != ncclSuccess) break;
        void* data = part.tensor.data_ptr();
        result = part.sends ? ncclSend(data, count(part.tensor), type_of(part.tensor), part.peer, communicator, stream)
                            : ncclRecv(data, count(part.tensor), type_of(part.tensor), part.peer, communicator, stream);
      }
      const ncclResult_t ended = ncclGroupEnd();
      return result == ncclSuccess || result == ncclInProgress ? ended : result;
    };
    batch->event = member(group).queue->issue(options_.compute, std::move(tensors), all, "exchange");
    batch->parts.clear();
    batch.reset();
  }

  std::array<Member, kGroups> members_;
  std::map<Lane, Queue> lanes_;
  NcclOptions options_;
  std::map<Group, std::shared_ptr<Batch>> batches_; ///< started, not issued
};

/// Issues its batch when the first of it is waited for.
class BatchTransfer final : public Transfer {
public:
  BatchTransfer(NcclCommunicator& communicator, Group group, std::shared_ptr<Batch> batch)
      : communicator_(communicator), group_(group), batch_(std::move(batch)) {}
  void wait() override {
    if (!batch_->event) communicator_.flush(group_);
    batch_->event->block(communicator_.options_.compute);
  }

private:
  NcclCommunicator& communicator_;
  Group group_;
  std::shared_ptr<Batch> batch_;
};

std::unique_ptr<Transfer> NcclCommunicator::add(Group group, Batch::Part part) {
  std::shared_ptr<Batch>& batch = batches_[group];
  if (!batch) batch = std::make_shared<Batch>();
  batch->parts.push_back(std::move(part));
  return std::make_unique<BatchTransfer>(*this, group, batch);
}

/// The first member makes the id; the others read it.
ncclUniqueId shared_id(c10d::Store& store, const std::string& key, bool first) {
  ncclUniqueId id{};
  if (first) {
    check_nccl(ncclGetUniqueId(&id), nullptr, "making an id");
    store.set(key, std::vector<std::uint8_t>(id.internal, id.internal + sizeof id.internal));
    return id;
  }
  const std::vector<std::uint8_t> bytes = store.get(key);
  if (bytes.size() != sizeof id.internal) throw std::runtime_error("an id of another version of NCCL");
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

/// Lanes between neighbours that this member is an end of, in one order for all: a member joins them one by one.
std::map<Lane, Queue> open_lanes(c10d::Store& store, const std::string& prefix, const Member& me,
                                 std::chrono::milliseconds timeout) {
  std::map<Lane, Queue> lanes;
  for (int from = 0; from < me.size; ++from)
    for (int to = 0; to < me.size; ++to) {
      const int distance = (to - from + me.size) % me.size;
      const bool neighbours = distance == 1 || distance == me.size - 1;
      if (!neighbours || (me.index != from && me.index != to)) continue;
      for (const bool gradients : {false, true}) {
        const std::string key = prefix + "/" + std::to_string(from) + "-" + std::to_string(to) + (gradients ? "b" : "f");
        const int place = me.index == std::min(from, to) ? 0 : 1;
        lanes[{from, to, gradients}] =
            std::make_unique<NcclQueue>(shared_id(store, key, place == 0), place, 2, timeout);
      }
    }
  return lanes;
}

} // namespace

Result<std::unique_ptr<Communicator>> connect_nccl(const Program& program, int rank,
                                                   const c10::intrusive_ptr<c10d::Store>& store,
                                                   const NcclOptions& options) {
  const Role& role = program.roles[static_cast<std::size_t>(program.mesh.coordinate(rank, Axis::pp))];
  const std::string where = "rank " + std::to_string(rank);
  std::array<Member, kGroups> members;
  std::map<Lane, Queue> lanes;
  try {
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "looking for devices of CUDA");
    if (options.device >= devices)
      return fail_environment(where, "there is no device " + std::to_string(options.device) + " of CUDA");
    check_cuda(cudaSetDevice(options.device), "choosing a device");
    for (const Group group : groups_of(program, role)) {
      const std::vector<int> ranks = program.mesh.members(group, rank);
      Member& member = members[static_cast<std::size_t>(group)];
      member.size = static_cast<int>(ranks.size());
      member.index = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
      const std::string key =
          "nccl/" + std::to_string(static_cast<int>(group)) + "/" + std::to_string(ranks.front());
      member.queue = std::make_unique<NcclQueue>(shared_id(*store, key, member.index == 0), member.index, member.size,
                                                 options.timeout);
      if (group == Group::pp) lanes = open_lanes(*store, key, member, options.timeout);
    }
  } catch (const std::exception& error) {
    return fail_environment(where, std::string("cannot connect with NCCL: ") + error.what());
  }
  return std::make_unique<NcclCommunicator>(std::move(members), std::move(lanes), options);
}

} // namespace foretrain
