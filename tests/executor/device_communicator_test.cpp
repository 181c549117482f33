#include "executor/communicators/device_communicator.h"

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/executor/fixtures.h"
#include "tests/executor/queues.h"
#include "tests/executor/tensor_device.h"

/// What stands between the interpreter and devices, on queues that keep the order of devices' streams.
namespace foretrain {
namespace {

using namespace executor_fixtures;

std::vector<LayoutCase> cases() {
  const ModelSpec llama = llama_like();
  const ModelSpec mixtral = mixtral_like();
  return {
      layout_case("tp2_sp", llama, [](Layout& l) { l.tp = 2, l.sequence_parallel = true; }),
      layout_case("pp2", llama, [](Layout& l) { l.pp = 2; }),
      layout_case("pp4", llama, [](Layout& l) { l.pp = 4; }),
      layout_case("pp2_gpipe_tied", llama_like(true), [](Layout& l) { l.pp = 2, l.schedule.kind = "gpipe"; }),
      layout_case("pp2_interleaved", llama,
                  [](Layout& l) {
                    l.pp = 2, l.schedule = {"interleaved", 2};
                  }),
      layout_case("pp2_zb_h1", llama, [](Layout& l) { l.pp = 2, l.schedule.kind = "zb-h1"; }),
      layout_case("pp2_zb_h2", llama, [](Layout& l) { l.pp = 2, l.schedule.kind = "zb-h2"; }),
      layout_case("dp2", llama, [](Layout& l) { l.dp_shard = 2; }),
      layout_case("zero1", llama, [](Layout& l) { l.dp_shard = 2, l.sharding.kind = ShardingKind::optimizer; }),
      layout_case("zero3_hsdp", llama,
                  [](Layout& l) { l.dp_shard = l.dp_replicate = 2, l.sharding.kind = ShardingKind::parameters; }),
      layout_case("cp2_ring", llama, [](Layout& l) { l.cp = 2; }),
      layout_case("cp2_gather", llama, [](Layout& l) { l.cp = 2, l.context_parallel.kind = ContextKind::all_gather; }),
      layout_case("cp2_ulysses", llama, [](Layout& l) { l.cp = 2, l.context_parallel.kind = ContextKind::ulysses; }),
      layout_case("ep2", mixtral, [](Layout& l) { l.dp_shard = l.ep = 2; }),
      layout_case("ep2_gather", mixtral,
                  [](Layout& l) { l.dp_shard = l.ep = 2, l.expert_dispatch.kind = DispatchKind::all_gather; }),
      layout_case("etp2", mixtral, [](Layout& l) { l.dp_shard = l.etp = 2; }),
      layout_case("tp2_sp_pp2_zero1", llama,
                  [](Layout& l) {
                    l.tp = l.pp = l.dp_shard = 2, l.sequence_parallel = true;
                    l.sharding.kind = ShardingKind::optimizer;
                  }),
  };
}

class DeviceOrder : public testing::TestWithParam<LayoutCase> {};

TEST_P(DeviceOrder, HoldsNobodyUpAndEqualsOneProcess) {
  QueueFabric fabric;
  Besides besides;
  besides.connect = [&fabric](const Program& program, int rank, const StorePointer& store) {
    return connect_devices(program, rank, store, fabric.link());
  };
  besides.device = &tensor_device;
  expect_equal_to_one_process(plan_of(GetParam().model, GetParam().layout), 2, {}, besides);
}

INSTANTIATE_TEST_SUITE_P(All, DeviceOrder, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<LayoutCase>& one) { return one.param.name; });

/// Two ranks of a tensor-parallel group, each in a thread.
void run_two(const std::function<void(Communicator&, int index)>& body) {
  Layout layout;
  layout.tp = 2;
  layout.sharding.kind = ShardingKind::none;
  const Program program = lowered(plan_of(llama_like(), layout));
  const auto store = c10::make_intrusive<c10d::HashStore>();
  QueueFabric fabric;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      auto communicator = connect_devices(program, rank, store, fabric.link());
      ASSERT_TRUE(communicator) << to_string(communicator.error());
      body(**communicator, rank);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(DeviceCommunicator, TransfersMeetByTheirTagsWhateverTheOrderOfTheirStart) {
  run_two([](Communicator& communicator, int index) {
    const int peer = 1 - index;
    const at::Tensor first = at::full({2}, 10.0 * index + 1, at::kDouble);
    const at::Tensor second = at::full({2}, 10.0 * index + 2, at::kDouble);
    at::Tensor got_first = at::zeros({2}, at::kDouble);
    at::Tensor got_second = at::zeros({2}, at::kDouble);
    std::vector<std::unique_ptr<Transfer>> started;
    started.push_back(communicator.start_send(Group::tp, peer, second, 2));
    started.push_back(communicator.start_receive(Group::tp, peer, got_first, 1));
    started.push_back(communicator.start_receive(Group::tp, peer, got_second, 2));
    started.push_back(communicator.start_send(Group::tp, peer, first, 1));
    for (const auto& transfer : started) transfer->wait();
    EXPECT_EQ(got_first[0].item<double>(), 10.0 * peer + 1);
    EXPECT_EQ(got_second[0].item<double>(), 10.0 * peer + 2);
  });
}

TEST(DeviceCommunicator, MovesColumnsOfAWholeThatIsNotInOnePiece) {
  run_two([](Communicator& communicator, int index) {
    at::Tensor whole = at::zeros({2, 5}, at::kDouble);
    at::Tensor columns = whole.narrow(1, 1, 3);
    const at::Tensor share = at::full({1, 3}, index + 1.0, at::kDouble);
    communicator.all_gather(Group::tp, share, columns);
    for (std::int64_t row = 0; row < 2; ++row)
      for (std::int64_t column = 0; column < 5; ++column)
        EXPECT_EQ(whole[row][column].item<double>(), column == 0 || column == 4 ? 0.0 : static_cast<double>(row + 1));
    at::Tensor sum = columns.narrow(0, index, 1); // this member's own part
    communicator.reduce_scatter(Group::tp, columns, sum);
    EXPECT_EQ(sum.min().item<double>(), 2.0 * (index + 1));
    EXPECT_EQ(sum.max().item<double>(), 2.0 * (index + 1));
  });
}

TEST(DeviceCommunicator, ACollectiveLetsEarlierTransfersOfItsGroupGoFirst) {
  run_two([](Communicator& communicator, int index) {
    at::Tensor got = at::zeros({1}, at::kDouble);
    const auto receive = communicator.start_receive(Group::tp, 1 - index, got, 0);
    const auto send = communicator.start_send(Group::tp, 1 - index, at::full({1}, index + 1.0, at::kDouble), 0);
    at::Tensor sum = at::ones({4}, at::kDouble);
    communicator.all_reduce(Group::tp, sum, Communicator::Reduction::sum);
    receive->wait();
    send->wait();
    communicator.barrier(Group::tp);
    EXPECT_EQ(sum[3].item<double>(), 2.0);
    EXPECT_EQ(got[0].item<double>(), 2.0 - index);
  });
}

} // namespace
} // namespace foretrain
