#include "core/program/lower.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "core/program/blocks.h"
#include "core/program/check.h"
#include "core/program/context.h"
#include "core/program/memory.h"
#include "core/program/schedules/all.h"
#include "tests/core/program/fixtures.h"

/// Properties that hold for every lowered plan, over a grid of layouts and schedules.
namespace foretrain {
namespace {

using namespace fixtures;

ModelSpec small_dense() {
  ModelSpec m = llama3(512, 8, 1536, 8, 4);
  m.head_dim = 64;
  m.vocab = 1000;
  return m;
}

ModelSpec small_moe() {
  ModelSpec m = small_dense();
  m.moe = MoeSpec{};
  m.moe->experts = 8;
  m.moe->top_k = 2;
  m.moe->ffn = 256;
  m.moe->shared_ffn = 512;
  m.moe->first_dense = 1;
  m.qk_norm = QkNorm::per_head;
  return m;
}

ModelSpec small_latent() {
  ModelSpec m = small_moe();
  m.heads = m.kv_heads = 8;
  m.latent = LatentAttention{96, 64, 32, 16, 32, 0, 0};
  m.head_dim = 48;
  return m;
}

struct Named {
  std::string name;
  Plan plan;
  Semantics semantics;
};

RecomputeChoice recompute_of(int choice, const ModelSpec& model) {
  RecomputeChoice r;
  switch (choice) {
  case 1:
    r.kind = RecomputeKind::full;
    break;
  case 2:
    r.kind = RecomputeKind::full;
    r.method = RecomputeMethod::block;
    r.count = 1;
    break;
  case 3:
    r.kind = RecomputeKind::selective;
    r.modules = {RecomputeModule::core_attention, RecomputeModule::layernorm, RecomputeModule::activation};
    if (model.latent) r.modules.push_back(RecomputeModule::mla_up);
    break;
  default:
    break;
  }
  return r;
}

/// Every schedule with every recomputation and sharding, and per model the axes that it has.
std::vector<Named> grid() {
  std::vector<Named> cases;
  struct Degrees {
    int tp, cp, ep, dp;
    ContextKind context;
    bool sp;
  };
  const std::vector<Degrees> degrees = {
      {1, 1, 1, 2, ContextKind::ring, false},         {2, 1, 1, 2, ContextKind::ring, true},
      {2, 1, 1, 1, ContextKind::ring, false},         {1, 2, 1, 2, ContextKind::ring, false},
      {1, 4, 1, 1, ContextKind::all_gather, false},   {2, 2, 1, 1, ContextKind::ulysses, true},
      {1, 4, 1, 1, ContextKind::ulysses_ring, false}, {2, 1, 4, 2, ContextKind::ring, true},
      {1, 1, 2, 4, ContextKind::ring, false}};
  for (const ModelSpec& model : {small_dense(), small_moe(), small_latent()})
    for (const auto& entry : schedules())
      for (const Degrees& d : degrees)
        for (int recompute = 0; recompute < 4; ++recompute)
          for (const ShardingKind sharding :
               {ShardingKind::none, ShardingKind::optimizer, ShardingKind::gradients, ShardingKind::parameters}) {
            if (d.ep > 1 && !model.moe) continue;
            // A quarter of the combinations, all values of all dimensions among them.
            if ((recompute + static_cast<int>(sharding) + d.tp + d.cp) % 4 != 0) continue;
            const int pp = 2;
            Named c;
            c.plan = plan(model, d.tp * d.cp * d.dp * pp, 256, 6 * d.dp);
            c.plan.cluster = node(d.tp * d.cp * d.dp * pp, 1);
            c.plan.job.cross_entropy = static_cast<CrossEntropy>((recompute + d.dp) % 3);
            c.plan.job.dropout = recompute % 2 == 0 ? 0.1 : 0;
            Layout& l = c.plan.layout;
            l.tp = d.tp;
            l.cp = d.cp;
            l.ep = d.ep;
            l.dp_shard = d.dp;
            l.pp = pp;
            l.sequence_parallel = d.sp;
            l.context_parallel = {d.context, d.context == ContextKind::ulysses_ring ? 2 : 1};
            l.schedule = {std::string(entry->id()), entry->takes_chunks() ? 2 : 1};
            l.recompute = recompute_of(recompute, model);
            l.sharding.kind = sharding;
            c.semantics = megatron();
            if (sharding == ShardingKind::parameters) c.semantics.family = SemanticsFamily::fsdp;
            c.name = std::string(entry->id()) + " tp" + std::to_string(d.tp) + " cp" + std::to_string(d.cp) + " ep" +
                     std::to_string(d.ep) + " recompute " + std::to_string(recompute) + " sharding " +
                     std::to_string(static_cast<int>(sharding)) +
                     (model.latent ? " latent"
                      : model.moe  ? " moe"
                                   : " dense");
            cases.push_back(std::move(c));
          }
  return cases;
}

Bytes persistent_of(const Role& role) {
  Bytes sum;
  for (const Persistent& entry : role.persistent) sum += entry.bytes;
  return sum;
}

TEST(Lower, SlotsAndOpsHaveTheSamePeaksEverywhere) {
  int compared = 0;
  for (const Named& c : grid()) {
    const Program program = lower(c.plan, c.semantics);
    for (const Role& role : program.roles) {
      const std::vector<MemoryPoint> slots = memory_timeline(program, role);
      ASSERT_EQ(slots, memory_timeline_by_op(program, role)) << c.name << " stage " << role.stage;
      Bytes highest = persistent_of(role);
      for (const MemoryPoint& point : slots) highest = std::max(highest, point.peak);
      EXPECT_EQ(stage_memory(program, role).allocated, highest) << c.name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(Lower, AStepEndsWithWhatItBeganWith) {
  for (const Named& c : grid()) {
    const Program program = lower(c.plan, c.semantics);
    for (const Role& role : program.roles) {
      const std::vector<MemoryPoint> points = memory_timeline(program, role);
      ASSERT_FALSE(points.empty());
      EXPECT_EQ(points.back().held, persistent_of(role)) << c.name << " stage " << role.stage;
      for (const MemoryPoint& point : points) {
        EXPECT_GE(point.held, persistent_of(role)) << c.name;
        EXPECT_GE(point.peak, point.held) << c.name;
      }
    }
  }
}

TEST(Lower, PartsAddUpToTheDevice) {
  for (const Named& c : grid()) {
    const Program program = lower(c.plan, c.semantics);
    for (const Role& role : program.roles) {
      const StageMemory memory = stage_memory(program, role);
      Bytes sum;
      for (const Bytes part : memory.parts) {
        EXPECT_GE(part, Bytes(0)) << c.name;
        sum += part;
      }
      EXPECT_EQ(sum, memory.device) << c.name;
    }
  }
}

TEST(Lower, EveryBufferIsAllocatedAndFreedOnce) {
  for (const Named& c : grid()) {
    const Program program = lower(c.plan, c.semantics);
    for (const Block& block : program.blocks) {
      std::map<int, int> allocated, freed;
      for (const std::vector<Op>* list : {&block.forward, &block.backward, &block.input, &block.weight})
        for (const Op& op : *list) {
          for (const int b : op.allocates) {
            ++allocated[b];
            EXPECT_EQ(allocated[b], freed[b] + 1) << c.name << ' ' << block.buffers[static_cast<std::size_t>(b)].name;
          }
          for (const int b : op.frees) ++freed[b];
        }
      for (int b = 0; b < static_cast<int>(block.buffers.size()); ++b) {
        const Buffer& buffer = block.buffers[static_cast<std::size_t>(b)];
        // What is gathered for a product lives in forward, recomputation and backward, each time anew; a buffer at a
        // border begins or ends in a neighbour.
        if (buffer.scope == BufferScope::block) {
          EXPECT_EQ(allocated[b], freed[b]) << c.name << ' ' << block.name << ' ' << buffer.name;
        }
        EXPECT_LE(allocated[b], 3) << c.name << ' ' << buffer.name;
      }
    }
  }
}

TEST(Lower, ProgramsPassTheStaticCheck) {
  int step = 0;
  for (const Named& c : grid()) {
    if (step++ % 7 != 0) continue; // all schedules, recomputations and axes are among these
    const Program program = lower(c.plan, c.semantics);
    for (const Problem& problem : check(program)) ADD_FAILURE() << c.name << ": " << problem.text;
  }
}

/// Elements of the whole model: those that tp or ep split, times their parts; replicas once; the padding taken off.
std::int64_t model_elements(const Plan& plan, const Program& program, const Semantics& semantics) {
  const ModelSpec& m = plan.model;
  const std::int64_t padding = (padded_vocab(m, plan.job, semantics, plan.layout.tp) - m.vocab) * m.hidden;
  std::int64_t sum = 0;
  for (const Role& role : program.roles)
    for (const Chunk& chunk : role.chunks)
      for (const int index : chunk.blocks)
        for (const Parameter& p : program.blocks[static_cast<std::size_t>(index)].parameters) {
          std::int64_t whole = 1;
          for (const std::int64_t extent : p.shape) whole *= extent;
          const int parts = p.expert ? plan.layout.ep * plan.layout.etp : p.replicated_tp ? 1 : plan.layout.tp;
          EXPECT_EQ(p.local_elements() * parts, whole) << p.name;
          sum += whole;
          if (p.name == "embedding" || p.name == "head") sum -= padding;
        }
  return sum;
}

TEST(Lower, ParametersOfAllRolesAreTheModel) {
  for (const Named& c : grid()) {
    const Program program = lower(c.plan, c.semantics);
    EXPECT_EQ(model_elements(c.plan, program, c.semantics), count_parameters(c.plan.model).total) << c.name;
  }
}

TEST(Lower, ATiedTableIsOneOnOneStageAndACopyOnTheLast) {
  Plan p = plan(small_dense(), 8, 256, 16);
  p.model.tied_embeddings = true;
  p.layout.dp_shard = 8;
  const Semantics s = megatron();
  EXPECT_EQ(model_elements(p, lower(p, s), s), count_parameters(p.model).total);
  p.layout.dp_shard = 4;
  p.layout.pp = 2;
  EXPECT_EQ(model_elements(p, lower(p, s), s),
            count_parameters(p.model).total + std::int64_t{p.model.vocab} * p.model.hidden);
}

// DeepSeek-V3 (arXiv:2412.19437), equation 21: depth k reads the state of depth k − 1, the first that of the model.
TEST(Lower, EachDepthOfMultiTokenPredictionReadsTheOneBefore) {
  Plan p = plan(small_moe(), 8, 256, 16);
  p.layout.dp_shard = 8;
  p.model.mtp_layers = 3;
  const Program program = lower(p, megatron());
  EXPECT_TRUE(check(program).empty());
  std::vector<std::string> read;
  std::vector<std::string> added;
  for (const Block& block : program.blocks) {
    if (block.kind != BlockKind::mtp) continue;
    const auto name = [&block](int buffer) { return block.buffers[static_cast<std::size_t>(buffer)].name; };
    const auto of_hidden = [&block](const Op& op) {
      return op.segment == Segment::norm && block.parameters[static_cast<std::size_t>(op.weights.front())].name.find(
                                                "norm_hidden") != std::string::npos;
    };
    for (const Op& op : block.forward)
      if (of_hidden(op)) read.push_back(name(op.reads.front()));
    for (const Op& op : block.backward)
      if (of_hidden(op)) added.push_back(name(op.writes.front()));
  }
  EXPECT_EQ(read, (std::vector<std::string>{"x", "mtp/out", "depth2/mtp/out"}));
  EXPECT_EQ(added, (std::vector<std::string>{"dstate2", "dstate1", "dx"}));
  std::int64_t here = 0;
  for (const Chunk& chunk : program.roles.front().chunks)
    for (const int index : chunk.blocks)
      for (const Parameter& parameter : program.blocks[static_cast<std::size_t>(index)].parameters)
        if (program.blocks[static_cast<std::size_t>(index)].kind == BlockKind::mtp) here += parameter.local_elements();
  const ModelSpec& m = p.model;
  const std::int64_t one =
      layer_parameters(m, mtp_shape(m), false) + 2 * std::int64_t{m.hidden} * m.hidden + 3 * std::int64_t{m.hidden};
  EXPECT_EQ(here, 3 * one);
}

// With tp beyond the key-value heads each rank keeps one head: max(1, kv / tp).
TEST(Lower, KeyValueHeadsAreReplicated) {
  Plan p = plan(small_dense(), 8, 256, 8);
  p.layout.tp = 8;
  p.layout.sequence_parallel = true;
  const Program program = lower(p, megatron());
  int seen = 0;
  for (const Block& block : program.blocks)
    for (const Parameter& parameter : block.parameters)
      if (parameter.name == "qkv") {
        EXPECT_EQ(parameter.local, (std::vector<std::int64_t>{(1 + 2 * 1) * 64, 512}));
        ++seen;
      }
  EXPECT_GT(seen, 0);
}

// Korthikanti et al. 2022 (arXiv:2205.05198): bytes per layer of GPT-3 175B, s 2048, b 1, h 12288, a 96, tp 8, with
// dropout and unfused attention: sbh(10 + 24/t + 5as/ht) = 552 MiB with tensor parallelism, sbh(34 + 5as/h)/t = 342
// with the sequence split too, 34sbh/t = 102 with attention recomputed; sbh(34 + 5as/h) = 2736 on one rank and 2sbh =
// 48 with all recomputed.
TEST(Lower, KeepsWhatTheClosedFormsOfKorthikantiCount) {
  ModelSpec gpt3 = llama3(12288, 96, 49152, 96, 96);
  gpt3.gated = false;
  gpt3.norm = NormKind::layer;
  gpt3.vocab = 51200;
  const Semantics s = megatron();
  const auto saved = [&](int tp, bool sp, RecomputeChoice recompute) {
    Plan p = plan(gpt3, 8, 2048, 8);
    p.job.dropout = 0.1;
    p.job.attention = AttentionKernel::unfused;
    p.layout.tp = tp;
    p.layout.sequence_parallel = sp;
    p.layout.recompute = std::move(recompute);
    const bool full = p.layout.recompute.kind == RecomputeKind::full;
    const LayerContext context = make_context(p.model, p.job, s, p.layout, p.cluster.device, false);
    const Block layer = make_layer(context, layer_shapes(p.model)[0], full);
    // The closed forms count matrices: statistics of norms and softmax (fp32 per token, or token and head) come on top,
    // those of the softmax where it is not recomputed.
    Bytes statistics;
    const bool keeps_softmax = p.layout.recompute.kind == RecomputeKind::none;
    for (const Buffer& buffer : layer.buffers) {
      const bool of_norm = buffer.name.find("statistics") != std::string::npos;
      if (!full && (of_norm || (keeps_softmax && buffer.name == "attention.logsumexp"))) statistics += buffer.bytes;
    }
    return mib(layer.forward_memory.net - statistics);
  };
  RecomputeChoice selective;
  selective.kind = RecomputeKind::selective;
  selective.modules = {RecomputeModule::core_attention};
  RecomputeChoice full;
  full.kind = RecomputeKind::full;
  EXPECT_EQ(saved(1, false, {}), 2736);
  EXPECT_EQ(saved(8, false, {}), 552);
  EXPECT_EQ(saved(8, true, {}), 342);
  EXPECT_EQ(saved(8, true, selective), 102);
  EXPECT_EQ(saved(8, false, full), 48);
}

} // namespace
} // namespace foretrain
