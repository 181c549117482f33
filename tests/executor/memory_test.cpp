#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/program/axes/data.h"
#include "core/program/context.h"
#include "core/program/memory.h"
#include "core/spec/names.h"
#include "core/spec/presets.h"
#include "tests/executor/fixtures.h"
#include "tests/support/places.h"

/// What the allocator counted on each rank against what the Program says.
namespace foretrain {
namespace {

using namespace executor_fixtures;

/// The plan's own promise (docs/executor.md): the highest number of bytes that a rank holds, within one per cent.
constexpr double kShare = 0.01;

struct Case {
  std::string name;
  ModelSpec model;
  Layout layout;
  Precision precision = Precision::fp32;
};
void PrintTo(const Case& value, std::ostream* out) {
  *out << value.name;
}

/// Wide enough that tokens and scalars, which the Program does not count, are no part of a per cent.
ModelSpec wide(ModelSpec m) {
  m.hidden = 128;
  m.heads = 8;
  m.kv_heads = 4;
  m.head_dim = 16;
  m.ffn = 256;
  m.vocab = 512;
  if (m.learned_positions > 0) {
    m.kv_heads = 8;
    m.learned_positions = 128;
  }
  if (m.moe) m.moe->ffn = m.moe->shared_ffn = 64;
  return m;
}

template <class Change> Case of(const std::string& name, const ModelSpec& model, Change&& change) {
  Case c{name, wide(model), {}, Precision::fp32};
  c.layout.sharding.kind = ShardingKind::none;
  change(c.layout);
  return c;
}

/// Norms of queries and keys, over each head and over all.
void add_head_norms(std::vector<Case>& list) {
  ModelSpec over_all = qwen3_like();
  over_all.name = "tiny-wide";
  over_all.qk_norm = QkNorm::full_width;
  ModelSpec layer_norm = gpt_like();
  layer_norm.name = "tiny-gpt";
  layer_norm.qk_norm = QkNorm::per_head;
  for (const ModelSpec& model : {qwen3_like(), over_all, olmoe_like(), layer_norm}) {
    const std::string id = "_" + model.name.substr(5) + "_qk_norm";
    list.push_back(of("alone" + id, model, [](Layout&) {}));
    list.push_back(of("tp2_sp" + id, model, [](Layout& l) { l.tp = 2, l.sequence_parallel = true; }));
    list.push_back(
        of("cp2_ulysses" + id, model, [](Layout& l) { l.cp = 2, l.context_parallel.kind = ContextKind::ulysses; }));
    list.push_back(of("zero3_pp2" + id, model,
                      [](Layout& l) { l.dp_shard = l.pp = 2, l.sharding.kind = ShardingKind::parameters; }));
    list.push_back(of("recomputed" + id, model, [](Layout& l) { l.recompute.kind = RecomputeKind::full; }));
  }
  for (const ModelSpec& model : {qwen3_like(), over_all}) {
    Case half = of("tp2_" + model.name.substr(5) + "_bf16", model, [](Layout& l) { l.tp = 2; });
    half.precision = Precision::bf16;
    list.push_back(half);
  }
}

std::vector<Case> cases() {
  const ModelSpec llama = llama_like();
  const ModelSpec mixtral = mixtral_like();
  std::vector<Case> list = {
      of("alone", llama, [](Layout&) {}),
      of("alone_tied", llama_like(true), [](Layout&) {}),
      of("alone_gpt", gpt_like(), [](Layout&) {}),
      of("tp2", llama, [](Layout& l) { l.tp = 2; }),
      of("tp2_sp", llama, [](Layout& l) { l.tp = 2, l.sequence_parallel = true; }),
      of("pp2", llama, [](Layout& l) { l.pp = 2; }),
      of("pp2_zb_h1", llama, [](Layout& l) { l.pp = 2, l.schedule.kind = "zb-h1"; }),
      of("pp2_interleaved", llama,
         [](Layout& l) {
           l.pp = 2, l.schedule = {"interleaved", 2};
         }),
      of("dp2", llama, [](Layout& l) { l.dp_shard = 2; }),
      of("zero1", llama, [](Layout& l) { l.dp_shard = 2, l.sharding.kind = ShardingKind::optimizer; }),
      of("zero2", llama, [](Layout& l) { l.dp_shard = 2, l.sharding.kind = ShardingKind::gradients; }),
      of("zero3", llama, [](Layout& l) { l.dp_shard = 2, l.sharding.kind = ShardingKind::parameters; }),
      of("zero3_hsdp", llama,
         [](Layout& l) { l.dp_shard = l.dp_replicate = 2, l.sharding.kind = ShardingKind::parameters; }),
      of("cp2_ring", llama, [](Layout& l) { l.cp = 2; }),
      of("cp2_gather", llama, [](Layout& l) { l.cp = 2, l.context_parallel.kind = ContextKind::all_gather; }),
      of("cp2_ulysses", llama, [](Layout& l) { l.cp = 2, l.context_parallel.kind = ContextKind::ulysses; }),
      of("recomputed", llama, [](Layout& l) { l.recompute.kind = RecomputeKind::full; }),
      of("moe", mixtral, [](Layout&) {}),
      of("moe_ep2", mixtral, [](Layout& l) { l.dp_shard = l.ep = 2; }),
      of("moe_ep2_gather", mixtral,
         [](Layout& l) { l.dp_shard = l.ep = 2, l.expert_dispatch.kind = DispatchKind::all_gather; }),
      of("moe_etp2", mixtral, [](Layout& l) { l.dp_shard = l.etp = 2; }),
      of("tp2_sp_pp2_zero1", llama,
         [](Layout& l) {
           l.tp = l.pp = l.dp_shard = 2, l.sequence_parallel = true;
           l.sharding.kind = ShardingKind::optimizer;
         }),
  };
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    Case on_host = of("on_host_" + std::string(id_of(precision)), llama, [](Layout& l) { l.offload.optimizer = true; });
    on_host.precision = precision;
    list.push_back(on_host);
  }
  list.push_back(of("zero1_on_host", llama, [](Layout& l) {
    l.dp_shard = 2, l.sharding.kind = ShardingKind::optimizer, l.offload.optimizer = true;
  }));
  list.push_back(of("zero3_pp2_on_host", mixtral, [](Layout& l) {
    l.dp_shard = l.pp = 2, l.sharding.kind = ShardingKind::parameters, l.offload.optimizer = true;
  }));
  add_head_norms(list);
  const ModelSpec mtp = with_mtp(llama);
  const auto shard = [](ShardingKind kind) { return [kind](Layout& l) { l.dp_shard = 2, l.sharding.kind = kind; }; };
  list.push_back(of("mtp", mtp, [](Layout&) {}));
  list.push_back(of("mtp_deepseek", deepseek_mtp_like(), [](Layout&) {}));
  list.push_back(
      of("mtp_tp2_sp_tied", with_mtp(llama_like(true)), [](Layout& l) { l.tp = 2, l.sequence_parallel = true; }));
  list.push_back(of("mtp_pp2", mtp, [](Layout& l) { l.pp = 2; }));
  list.push_back(of("mtp_pp2_zb_h1", mtp, [](Layout& l) { l.pp = 2, l.schedule.kind = "zb-h1"; }));
  list.push_back(of("mtp_zero2", mtp, shard(ShardingKind::gradients)));
  list.push_back(of("mtp_zero3", mtp, shard(ShardingKind::parameters)));
  list.push_back(of("mtp_zero3_pp2_tied", with_mtp(llama_like(true)),
                    [](Layout& l) { l.dp_shard = l.pp = 2, l.sharding.kind = ShardingKind::parameters; }));
  Case half = list.back();
  half.name += "_bf16";
  half.precision = Precision::bf16;
  list.push_back(half);
  Case exact = list.front();
  exact.name = "alone_fp64";
  exact.precision = Precision::fp64;
  list.push_back(exact);
  return list;
}

/// On processors for which oneDNN has kernels of half precision, LibTorch's product copies an operand: what the library
/// takes depends on the machine and is no part of the Program (docs/executor.md), so it computes without oneDNN here.
struct WithoutOneDnn {
  bool before = at::globalContext().userEnabledMkldnn();
  WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(false); }
  ~WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(before); }
  WithoutOneDnn(const WithoutOneDnn&) = delete;
  WithoutOneDnn& operator=(const WithoutOneDnn&) = delete;
};

/// Bytes beyond buffers when the instruction adds up the gradients' norm; else 0.
std::int64_t scratch_of_norm(const Role& role, int index) {
  const Instruction& instruction = role.instructions[static_cast<std::size_t>(index)];
  if (instruction.kind != InstructionKind::step) return 0;
  const Op& op = role.step[static_cast<std::size_t>(instruction.step)];
  if (op.kind != OpKind::compute || op.segment != Segment::gradient_norm) return 0;
  return role.step_peak[static_cast<std::size_t>(instruction.step)].value;
}

/// What the Program says of the host.
double host_bytes(const Plan& plan, const Program& program, const Role& role) {
  const auto semantics = DataFolder{test::source_folder() / "data"}.semantics("foretrain");
  const LayerContext context =
      make_context(plan.model, plan.job, *semantics, plan.layout, plan.cluster.device, program.split_backward);
  return static_cast<double>(data::host_memory(context, program, role).value);
}

class MemoryTest : public testing::TestWithParam<Case> {};

TEST_P(MemoryTest, PredictedPeakIsTheAllocators) {
  Plan plan = plan_of(GetParam().model, GetParam().layout);
  plan.job.sequence_length = 128;
  plan.job.precision = GetParam().precision;
  const Program program = lowered(plan);
  const WithoutOneDnn plain;
  const RunOutcome outcome = run_threads(plan, 2);
  for (const auto& [op, bytes] : outcome.scratch)
    ADD_FAILURE() << op << " takes " << bytes.second << " bytes beyond its buffers, not " << bytes.first;
  for (const StepRecord& record : outcome.records.back()) {
    const Role& role = program.roles[static_cast<std::size_t>(program.mesh.coordinate(record.rank, Axis::pp))];
    const auto predicted = static_cast<double>(stage_memory(program, role).allocated.value);
    const auto measured = static_cast<double>(record.peak_bytes);
    RecordProperty("error_percent_rank" + std::to_string(record.rank),
                   std::to_string((predicted / measured - 1) * 100));
    EXPECT_LT(std::abs(predicted / measured - 1), kShare)
        << "rank " << record.rank << ": predicted " << predicted << ", measured " << measured << ", peak at "
        << stage_memory(program, role).peak_at;
    const std::vector<MemoryPoint> timeline = memory_timeline(program, role);
    ASSERT_EQ(record.peaks.size(), timeline.size());
    for (const MemoryPoint& point : timeline) { // and within every slot, transfer and op of the step's end
      const auto there = static_cast<double>(record.peaks[static_cast<std::size_t>(point.instruction)]);
      if (const std::int64_t norm = scratch_of_norm(role, point.instruction); norm > 0) {
        // A replica whose elements others count adds nothing up, and takes none of the scratch.
        EXPECT_LT(there, static_cast<double>(point.peak.value) * (1 + kShare)) << "rank " << record.rank;
        EXPECT_GT(there, static_cast<double>(point.peak.value - norm) * (1 - kShare)) << "rank " << record.rank;
        continue;
      }
      EXPECT_LT(std::abs(static_cast<double>(point.peak.value) / there - 1), kShare)
          << "rank " << record.rank << ", instruction " << point.instruction << ": predicted " << point.peak.value
          << ", measured " << there;
    }
    const double host = host_bytes(plan, program, role);
    EXPECT_EQ(record.host_peak_bytes < 0, host == 0);
    if (host > 0) {
      EXPECT_LT(std::abs(host / static_cast<double>(record.host_peak_bytes) - 1), kShare)
          << "rank " << record.rank << " on the host: predicted " << host << ", measured " << record.host_peak_bytes;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MemoryTest, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& one) { return one.param.name; });

} // namespace
} // namespace foretrain
