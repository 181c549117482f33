#include "tests/core/spec/random_specs.h"

#include <algorithm>

namespace foretrain {
namespace {

int number(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}
bool coin(Random& random) {
  return number(random, 0, 1) == 1;
}
double share(Random& random) {
  return std::uniform_real_distribution<double>(0, 0.99)(random);
}
/// Any magnitude, any digits: what units must survive.
double rate(Random& random) {
  return std::exp(std::uniform_real_distribution<double>(1, 30)(random));
}
Bytes bytes(Random& random) {
  return Bytes(std::uniform_int_distribution<std::int64_t>(1, std::int64_t{1} << number(random, 1, 45))(random));
}

template <class E, std::size_t N> E one_of(Random& random, const std::array<E, N>& values) {
  return values[static_cast<std::size_t>(number(random, 0, static_cast<int>(N) - 1))];
}
template <class T> std::optional<T> maybe(Random& random, T value) {
  return coin(random) ? std::optional<T>(std::move(value)) : std::nullopt;
}
template <class E, std::size_t N> std::vector<E> some_of(Random& random, const std::array<E, N>& values) {
  std::vector<E> some;
  for (const E value : values)
    if (coin(random)) some.push_back(value);
  return some;
}
std::string text(Random& random) {
  constexpr std::array words = {"", "plain", "名前", "a \"quoted\" | name", "tab\tand\nline", "émigré", "🙂"};
  return one_of(random, words);
}

constexpr std::array kSharding = {ShardingKind::none, ShardingKind::optimizer, ShardingKind::gradients,
                                  ShardingKind::parameters};
constexpr std::array kContext = {ContextKind::all_gather, ContextKind::ring, ContextKind::ulysses,
                                 ContextKind::ulysses_ring};
constexpr std::array kDispatch = {DispatchKind::all_gather, DispatchKind::all_to_all, DispatchKind::deduplicated};
constexpr std::array kRecompute = {RecomputeKind::none, RecomputeKind::full, RecomputeKind::selective,
                                   RecomputeKind::operators};
constexpr std::array kAdapters = {AdapterTarget::qkv, AdapterTarget::attention_out, AdapterTarget::ffn_up,
                                  AdapterTarget::ffn_down};
constexpr std::array kKept = {KeptOutput::query, KeptOutput::key,  KeptOutput::value, KeptOutput::attention,
                              KeptOutput::gate,  KeptOutput::down, KeptOutput::up,    KeptOutput::attention_out};
constexpr std::array kModules = {
    RecomputeModule::core_attention, RecomputeModule::layernorm, RecomputeModule::activation,
    RecomputeModule::mla_up,         RecomputeModule::mlp,       RecomputeModule::moe};
constexpr std::array kPrecisions = {Precision::fp64,          Precision::fp32,        Precision::bf16,
                                    Precision::fp16,          Precision::fp8_delayed, Precision::fp8_current,
                                    Precision::fp8_blockwise, Precision::mxfp8,       Precision::nvfp4};

std::vector<int> degrees(Random& random) {
  std::vector<int> some(static_cast<std::size_t>(number(random, 0, 3)));
  for (int& degree : some) degree = number(random, 1, 1024);
  return some;
}

std::string random_pattern(Random& random, const ModelSpec& model) {
  std::string letters = "AI*-";
  if (model.latent) letters += 'L';
  if (model.delta) letters += 'D';
  if (model.mamba) letters += 'M';
  if (model.moe) letters += 'E';
  std::string pattern;
  for (int i = 0; i < model.layers; ++i)
    pattern += letters[static_cast<std::size_t>(number(random, 0, static_cast<int>(letters.size()) - 1))];
  return pattern;
}

} // namespace

ModelSpec random_model(Random& random) {
  ModelSpec model;
  model.name = text(random);
  model.layers = number(random, 1, 40);
  model.hidden = number(random, 1, 9000);
  model.kv_heads = number(random, 1, 16);
  model.heads = model.kv_heads * number(random, 1, 8);
  model.head_dim = number(random, 1, 256);
  model.ffn = number(random, 1, 30000);
  model.gated = coin(random);
  model.vocab = number(random, 1, 200000);
  model.tied_embeddings = coin(random);
  model.norm = coin(random) ? NormKind::rms : NormKind::layer;
  model.parallel_block = coin(random);
  model.norm_placement =
      model.parallel_block
          ? NormPlacement::before
          : one_of(random, std::array{NormPlacement::before, NormPlacement::after, NormPlacement::around});
  model.norms_per_layer = model.norm_placement == NormPlacement::before  ? number(random, 0, 3)
                          : model.norm_placement == NormPlacement::after ? 2
                                                                         : 4;
  model.final_norm = coin(random);
  model.embedding_norm = coin(random);
  model.learned_positions = coin(random) ? number(random, 0, 4096) : 0;
  model.embedding_projection = coin(random) ? number(random, 0, 512) : 0;
  model.qkv_bias = coin(random);
  model.out_bias = coin(random);
  model.mlp_bias = coin(random);
  model.qk_norm = one_of(random, std::array{QkNorm::none, QkNorm::per_head, QkNorm::full_width});
  model.attention_sinks = coin(random);
  model.output_gate = coin(random);
  model.scaled_embedding = coin(random);
  model.attention_softcap = coin(random) ? 50 : 0;
  model.logit_softcap = coin(random) ? 30.5 : 0;
  if (coin(random))
    model.latent = LatentAttention{maybe(random, number(random, 1, 2048)),
                                   number(random, 1, 1024),
                                   number(random, 0, 128),
                                   number(random, 1, 64),
                                   number(random, 1, 128),
                                   number(random, 1, 64),
                                   number(random, 1, 128)};
  if (coin(random)) {
    MoeSpec moe;
    moe.groups = number(random, 1, 8);
    moe.top_groups = number(random, 1, moe.groups);
    moe.experts = moe.groups * number(random, 1, 16);
    moe.top_k = number(random, 1, moe.experts);
    moe.ffn = number(random, 1, 4000);
    moe.shared_ffn = number(random, 0, 4000);
    moe.shared_gate = coin(random);
    moe.router_bias = coin(random);
    moe.correction_bias = coin(random);
    moe.expert_bias = coin(random);
    moe.first_dense = number(random, 0, model.layers);
    moe.every = number(random, 1, 4);
    if (coin(random)) moe.dense_layers = {number(random, 0, model.layers - 1)};
    model.moe = moe;
  }
  if (coin(random)) model.window = SlidingWindow{number(random, 1, 8192), number(random, 0, 6), {}};
  if (coin(random))
    model.delta =
        DeltaNet{number(random, 1, 16), number(random, 1, 128), number(random, 1, 32), number(random, 1, 128), 4};
  if (coin(random))
    model.mamba = Mamba2{number(random, 1, 64), number(random, 1, 64), number(random, 1, 8), number(random, 1, 128), 4};
  if (coin(random)) model.pattern = random_pattern(random, model);
  model.mtp_layers = number(random, 0, 2);
  model.mtp_own_embeddings = coin(random);
  model.maximum_positions = number(random, 0, 1 << 20);
  if (coin(random)) model.notes = {text(random), text(random)};
  model.source = text(random);
  return model;
}

DeviceSpec random_device(Random& random) {
  DeviceSpec device;
  device.name = text(random);
  device.vendor = text(random);
  device.architecture = text(random);
  const Bytes memory = bytes(random);
  device.memory = maybe(random, memory);
  device.usable_memory = maybe(random, Bytes((memory.value + 1) / 2));
  device.memory_bandwidth = maybe(random, BytesPerSecond(rate(random)));
  for (const auto peak : {&DeviceSpec::fp32, &DeviceSpec::tf32, &DeviceSpec::fp16, &DeviceSpec::bf16, &DeviceSpec::fp8,
                          &DeviceSpec::fp4, &DeviceSpec::fp64, &DeviceSpec::achievable_bf16})
    device.*peak = maybe(random, FlopPerSecond(rate(random)));
  device.multiprocessors = maybe(random, number(random, 1, 300));
  device.scaleup = maybe(random, BytesPerSecond(rate(random)));
  device.scaleup_domain = maybe(random, number(random, 1, 72));
  device.watts = maybe(random, share(random) * 1000);
  device.source = text(random);
  device.notes = text(random);
  return device;
}

ClusterSpec random_cluster(Random& random) {
  ClusterSpec cluster;
  cluster.name = text(random);
  cluster.device = random_device(random);
  const int tiers = number(random, 1, 3);
  for (int i = 0; i < tiers; ++i) {
    TierSpec tier;
    tier.name = text(random);
    tier.link.bandwidth = coin(random) ? BytesPerSecond(rate(random)) : BytesPerSecond(0);
    tier.link.latency = Seconds(share(random) * 1e-5);
    tier.link.efficiency = share(random);
    tier.fabric =
        one_of(random, std::array{Fabric::switched, Fabric::mesh, Fabric::rail, Fabric::fat_tree, Fabric::torus});
    tier.fanout = number(random, 1, 64);
    if (tier.fabric == Fabric::torus) {
      tier.shape = {number(random, 1, 8), number(random, 1, 8)};
      tier.fanout = tier.shape[0] * tier.shape[1];
    }
    tier.oversubscription = 1 + share(random);
    tier.background_load = share(random);
    cluster.tiers.push_back(tier);
  }
  if (coin(random)) cluster.devices_per_host = cluster.tiers.front().fanout;
  cluster.host_link = maybe(random, BytesPerSecond(rate(random)));
  cluster.host_memory = maybe(random, bytes(random));
  cluster.ranks_per_processor = number(random, 1, 4);
  cluster.cost_per_device_hour = maybe(random, share(random) * 10);
  cluster.source = text(random);
  cluster.notes = text(random);
  return cluster;
}

JobSpec random_job(Random& random) {
  JobSpec job;
  job.sequence_length = number(random, 1, 100000);
  job.global_batch = number(random, 1, 100000);
  job.precision = one_of(random, kPrecisions);
  job.gradient = one_of(random, std::array{DType::fp64, DType::fp32, DType::bf16, DType::fp16});
  job.optimizer.kind =
      one_of(random, std::array{OptimizerKind::adamw, OptimizerKind::lion, OptimizerKind::sgd, OptimizerKind::adafactor,
                                OptimizerKind::muon, OptimizerKind::adamw_8bit});
  const OptimizerKind kind = job.optimizer.kind;
  if (kind != OptimizerKind::adafactor && kind != OptimizerKind::adamw_8bit)
    job.optimizer.moments = one_of(random, std::array{DType::fp32, DType::bf16, DType::fp16, DType::fp8});
  if (kind == OptimizerKind::sgd) job.optimizer.momentum = coin(random);
  job.dropout = share(random);
  if (coin(random)) job.routing = RoutingChoice{RoutingKind::imbalanced, 1 + share(random), std::nullopt};
  job.routing.capacity_factor = maybe(random, 1 + share(random));
  job.attention = coin(random) ? AttentionKernel::flash : AttentionKernel::unfused;
  job.cross_entropy = maybe(random, one_of(random, std::array{CrossEntropy::fused, CrossEntropy::vocab_parallel,
                                                              CrossEntropy::plain, CrossEntropy::compiled}));
  job.expandable_segments = coin(random);
  job.compiled = coin(random);
  if (job.precision == Precision::mxfp8 || job.precision == Precision::fp8_current)
    job.quantised_weights = coin(random);
  if (coin(random)) {
    job.lora = LoraChoice{number(random, 1, 64), some_of(random, kAdapters)};
    if (job.lora->targets.empty()) job.lora->targets = {AdapterTarget::ffn_down};
  }
  job.vocab_extra = maybe(random, number(random, 0, 3));
  job.semantics = one_of(random, std::array{"megatron-core", "torchtitan", "deepspeed", "foretrain"});
  if (coin(random)) {
    const double first = share(random);
    job.packed = {{number(random, 1, job.sequence_length), first}, {number(random, 1, job.sequence_length), 1 - first}};
  }
  return job;
}

Layout random_layout(Random& random) {
  Layout layout;
  for (const auto degree : {&Layout::tp, &Layout::pp, &Layout::cp, &Layout::dp_shard, &Layout::dp_replicate})
    layout.*degree = number(random, 1, 15);
  layout.ep = number(random, 1, 64);
  layout.etp = number(random, 1, 8);
  std::shuffle(layout.placement.begin(), layout.placement.end(), random);
  layout.micro_batch = number(random, 1, 8);
  layout.sequence_parallel = coin(random);
  layout.schedule.kind =
      std::string(kScheduleKinds[static_cast<std::size_t>(number(random, 0, kScheduleKinds.size() - 1))]);
  if (layout.schedule.kind == "interleaved") {
    layout.schedule.chunks = number(random, 1, 8);
    layout.schedule.group = number(random, 0, 8);
  }
  if (coin(random)) layout.layers_per_stage = {number(random, 0, 9), number(random, 0, 9)};
  layout.sharding.kind = one_of(random, kSharding);
  if (layout.sharding.kind == ShardingKind::parameters)
    layout.sharding.reshard_after_forward = maybe(random, coin(random));
  layout.context_parallel.kind = one_of(random, kContext);
  if (layout.context_parallel.kind == ContextKind::ulysses_ring) layout.context_parallel.ulysses = number(random, 1, 8);
  layout.expert_dispatch.kind = one_of(random, kDispatch);
  layout.recompute.kind = one_of(random, kRecompute);
  if (layout.recompute.kind == RecomputeKind::full) {
    layout.recompute.method = coin(random) ? RecomputeMethod::uniform : RecomputeMethod::block;
    layout.recompute.count = maybe(random, number(random, 1, 8));
  }
  if (layout.recompute.kind == RecomputeKind::selective) {
    layout.recompute.modules = some_of(random, kModules);
    if (layout.recompute.modules.empty()) layout.recompute.modules = {RecomputeModule::moe};
  }
  layout.offload.optimizer = coin(random);
  layout.overlap = OverlapChoice{coin(random), coin(random), coin(random), coin(random), coin(random)};
  return layout;
}

Semantics random_semantics(Random& random) {
  Semantics semantics;
  semantics.name = text(random);
  semantics.family = one_of(random, std::array{SemanticsFamily::megatron, SemanticsFamily::fsdp, SemanticsFamily::zero,
                                               SemanticsFamily::foretrain});
  semantics.version = text(random);
  semantics.vocab_multiple = number(random, 1, 256);
  semantics.parameter = coin(random) ? DType::bf16 : DType::fp32;
  for (const auto flag :
       {&Semantics::full_gradient_buffer, &Semantics::master_weights, &Semantics::dummy_weight_gradients,
        &Semantics::keeps_input_gradient, &Semantics::keeps_logits, &Semantics::value_in_mixed,
        &Semantics::orders_attention_output, &Semantics::replays_allocator, &Semantics::ends_are_layers,
        &Semantics::reshard_after_forward, &Semantics::tp_overlap, &Semantics::kv_replication, &Semantics::tied_with_pp,
        &Semantics::sequence_parallel, &Semantics::uneven_stages})
    semantics.*flag = coin(random);
  for (const auto size :
       {&Semantics::workspace_head, &Semantics::workspace, &Semantics::context, &Semantics::communicator})
    semantics.*size = bytes(random);
  semantics.cross_entropy = coin(random) ? CrossEntropy::fused : CrossEntropy::plain;
  semantics.fragmentation = share(random);
  semantics.operators_kept = some_of(random, kKept);
  semantics.compiled_drops = some_of(random, kKept);
  if (coin(random)) semantics.cross_entropy_compiled = CrossEntropy::compiled;
  semantics.bucket_floor = number(random, 0, 1 << 30);
  semantics.host_per_layer = Seconds(share(random) * 1e-3);
  semantics.moe_host_sync = Seconds(share(random) * 1e-4);
  for (const std::string_view kind : kScheduleKinds)
    if (coin(random)) semantics.schedules.emplace_back(kind);
  semantics.sharding = some_of(random, kSharding);
  semantics.context_parallel = some_of(random, kContext);
  semantics.dispatch = some_of(random, kDispatch);
  semantics.recompute = some_of(random, kRecompute);
  semantics.recompute_modules = some_of(random, kModules);
  semantics.precisions = some_of(random, kPrecisions);
  semantics.block_features =
      some_of(random, std::array{BlockFeature::parallel, BlockFeature::joint_parallel, BlockFeature::norms_after,
                                 BlockFeature::norms_around, BlockFeature::softcap, BlockFeature::qk_norms,
                                 BlockFeature::wide_qk_norms, BlockFeature::split_wide_qk_norms});
  if (coin(random)) semantics.sources = {{"context", text(random)}, {"schedules", text(random)}};
  return semantics;
}

SearchSpace random_space(Random& random) {
  SearchSpace space;
  for (const auto list : {&SearchSpace::tp, &SearchSpace::pp, &SearchSpace::cp, &SearchSpace::ep, &SearchSpace::etp,
                          &SearchSpace::dp_replicate, &SearchSpace::micro_batch, &SearchSpace::chunks})
    space.*list = degrees(random);
  if (coin(random)) space.sequence_parallel = {coin(random), coin(random)};
  for (const std::string_view kind : kScheduleKinds)
    if (coin(random)) space.schedules.emplace_back(kind);
  space.sharding = some_of(random, kSharding);
  space.context_parallel = some_of(random, kContext);
  space.expert_dispatch = some_of(random, kDispatch);
  space.recompute = some_of(random, kRecompute);
  if (coin(random)) space.offload_optimizer = {coin(random)};
  if (coin(random)) space.overlap_tp = {coin(random)};
  return space;
}

} // namespace foretrain
