#include "core/program/allocator.h"

#include <limits>

#include <gtest/gtest.h>

#include "core/program/reserved.h"
#include "core/program/stages.h"
#include "tests/core/program/fixtures.h"

namespace foretrain {
namespace {

using namespace fixtures;

const Bytes kEndless(std::numeric_limits<std::int64_t>::max() / 2);

// Segments of 2 MiB up to a request of 1 MiB, of 20 MiB below 10 MiB, else of the request in steps of 2 MiB
// (c10/cuda/CUDACachingAllocator.cpp: kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge).
TEST(CachingAllocator, TakesSegmentsBySize) {
  const auto reserves = [](Bytes bytes) {
    CachingAllocator allocator(kEndless);
    allocator.allocate(bytes);
    return allocator.reserved();
  };
  EXPECT_EQ(reserves(Bytes(1)), Bytes(2 * kMiB));
  EXPECT_EQ(reserves(Bytes(kMiB)), Bytes(2 * kMiB));
  EXPECT_EQ(reserves(Bytes(kMiB + 1)), Bytes(20 * kMiB));
  EXPECT_EQ(reserves(Bytes(10 * kMiB - 512)), Bytes(20 * kMiB));
  EXPECT_EQ(reserves(Bytes(10 * kMiB)), Bytes(10 * kMiB));
  EXPECT_EQ(reserves(Bytes(31 * kMiB)), Bytes(32 * kMiB));
}

TEST(CachingAllocator, RoundsToHalfAKibibyte) {
  CachingAllocator allocator(kEndless);
  allocator.allocate(Bytes(513));
  EXPECT_EQ(allocator.allocated(), Bytes(1024));
}

// The rest of a block serves the next request; neighbours that are free join to serve a larger one.
TEST(CachingAllocator, SplitsAndJoins) {
  CachingAllocator allocator(kEndless);
  allocator.free(allocator.allocate(Bytes(100 * kMiB)));
  const int first = allocator.allocate(Bytes(40 * kMiB));
  const int second = allocator.allocate(Bytes(60 * kMiB));
  EXPECT_EQ(allocator.reserved(), Bytes(100 * kMiB));
  allocator.free(first);
  allocator.free(second);
  allocator.allocate(Bytes(100 * kMiB));
  EXPECT_EQ(allocator.reserved(), Bytes(100 * kMiB));
}

// A hole that a request does not fit is not used: that is what fragmentation costs.
TEST(CachingAllocator, LeavesHolesThatAreTooSmall) {
  CachingAllocator allocator(kEndless);
  const int whole = allocator.allocate(Bytes(100 * kMiB));
  allocator.free(whole);
  const int first = allocator.allocate(Bytes(60 * kMiB));
  allocator.allocate(Bytes(40 * kMiB));
  allocator.free(first);
  allocator.allocate(Bytes(80 * kMiB));
  EXPECT_EQ(allocator.reserved(), Bytes(180 * kMiB));
}

TEST(CachingAllocator, TakesTheSmallestBlockThatFits) {
  CachingAllocator allocator(kEndless);
  const int large = allocator.allocate(Bytes(64 * kMiB));
  const int small = allocator.allocate(Bytes(32 * kMiB));
  allocator.free(large);
  allocator.free(small);
  EXPECT_EQ(allocator.allocate(Bytes(32 * kMiB)), small);
}

TEST(CachingAllocator, GivesBackWholeSegmentsBeforeItFails) {
  CachingAllocator allocator(Bytes(100 * kMiB));
  allocator.free(allocator.allocate(Bytes(60 * kMiB)));
  EXPECT_NE(allocator.allocate(Bytes(80 * kMiB)), CachingAllocator::kNone);
  EXPECT_EQ(allocator.reserved(), Bytes(80 * kMiB));
  EXPECT_FALSE(allocator.failed());
  EXPECT_EQ(allocator.allocate(Bytes(30 * kMiB)), CachingAllocator::kNone);
  EXPECT_TRUE(allocator.failed());
}

// What another stream used is not free until the device has got there; a host that runs out of room waits for it.
TEST(CachingAllocator, HoldsWhatAnotherStreamUsed) {
  CachingAllocator allocator(Bytes(100 * kMiB));
  allocator.free_later(allocator.allocate(Bytes(40 * kMiB)));
  allocator.allocate(Bytes(40 * kMiB));
  EXPECT_EQ(allocator.reserved(), Bytes(80 * kMiB));
  EXPECT_NE(allocator.allocate(Bytes(60 * kMiB)), CachingAllocator::kNone);
  EXPECT_EQ(allocator.reserved(), Bytes(100 * kMiB));
}

Plan pipeline_plan() {
  Plan p = plan(llama3(4096, 32, 14336, 8), 8, 4096, 64);
  p.layout.tp = 2;
  p.layout.pp = 2;
  p.layout.dp_shard = 2;
  p.layout.sequence_parallel = true;
  return p;
}

Semantics replayed() {
  Semantics s = megatron();
  s.replays_allocator = true;
  return s;
}

TEST(ReservedMemory, IsAtLeastWhatIsAllocatedAndIndependentOfFurtherMicroBatches) {
  Plan p = pipeline_plan();
  const auto reserved = [&p](std::size_t stage) {
    const Program program = lower(p, replayed());
    return stage_memory_within(program, program.roles[stage], std::nullopt);
  };
  for (const std::size_t stage : {0, 1}) {
    p.job.global_batch = 64;
    const StageMemory memory = reserved(stage);
    EXPECT_GE(memory.reserved, memory.allocated);
    EXPECT_LT(memory.reserved.value, 1.3 * static_cast<double>(memory.allocated.value));
    Bytes parts;
    for (const Bytes part : memory.parts) parts += part;
    EXPECT_EQ(parts, memory.device);
    p.job.global_batch = 256;
    EXPECT_EQ(reserved(stage).reserved, memory.reserved);
  }
}

// On a device that is full the allocator gives back what it does not use; below what is allocated nothing helps.
TEST(ReservedMemory, ShrinksToTheDevice) {
  const Program program = lower(pipeline_plan(), replayed());
  const Role& role = program.roles.front();
  const StageMemory free = stage_memory_within(program, role, std::nullopt);
  const Bytes tight = free.device - Bytes((free.reserved - free.allocated).value / 4);
  EXPECT_LE(stage_memory_within(program, role, tight).device, tight);
  const Bytes less = free.allocated + role.outside - Bytes(kMiB);
  EXPECT_GT(stage_memory_within(program, role, less).device, less);
}

TEST(ReservedMemory, IsAShareWhereTheAllocatorIsNotReplayed) {
  const Program program = lower(pipeline_plan(), megatron());
  const Role& role = program.roles.front();
  EXPECT_EQ(stage_memory_within(program, role, std::nullopt).reserved, stage_memory(program, role).reserved);
}

// 40 layers with embedding, norm and head are 43: 11, 11, 11, 10 of them (pipe_partition_uniform).
TEST(Stages, CountTheEndsWhereTheFrameworkDoes) {
  Semantics s = megatron();
  s.ends_are_layers = true;
  Layout layout;
  layout.pp = 4;
  const ModelSpec model = llama3(5120, 40, 13824, 40);
  EXPECT_EQ(layers_per_chunk(model, layout, s), (std::vector<int>{10, 11, 11, 8}));
  EXPECT_EQ(layers_per_chunk(model, layout, megatron()), (std::vector<int>{10, 10, 10, 10}));
  layout.pp = 2;
  EXPECT_EQ(layers_per_chunk(model, layout, s), (std::vector<int>{21, 19}));
  layout.layers_per_stage = {20, 20};
  EXPECT_EQ(layers_per_chunk(model, layout, s), layout.layers_per_stage);
}

} // namespace
} // namespace foretrain
