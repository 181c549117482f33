#pragma once

#include <string>

#include "core/program/lower.h"
#include "core/program/memory.h"

/// Plans of the measured runs that the tests recompute.
namespace foretrain::fixtures {

/// Llama 3 shapes (arXiv:2407.21783, table 3) with another depth.
inline ModelSpec llama3(int hidden, int heads, int ffn, int layers, int kv_heads = 8) {
  ModelSpec m;
  m.name = "llama3";
  m.layers = layers;
  m.hidden = hidden;
  m.heads = heads;
  m.kv_heads = kv_heads;
  m.head_dim = 128;
  m.ffn = ffn;
  m.vocab = 128256;
  return m;
}
inline ModelSpec llama3_70b(int layers = 80) {
  return llama3(8192, 64, 28672, layers);
}
inline ModelSpec llama3_405b(int layers = 126) {
  return llama3(16384, 128, 53248, layers);
}

inline ModelSpec deepseek_v2(int layers) {
  ModelSpec m;
  m.name = "deepseek-v2";
  m.layers = layers;
  m.hidden = 5120;
  m.heads = 128;
  m.kv_heads = 128;
  m.head_dim = 192;
  m.ffn = 12288;
  m.vocab = 102400;
  m.latent = LatentAttention{1536, 512, 128, 64, 128, 0, 0};
  m.moe = MoeSpec{};
  m.moe->experts = 160;
  m.moe->top_k = 6;
  m.moe->ffn = 1536;
  m.moe->shared_ffn = 3072;
  m.moe->first_dense = 1;
  return m;
}
inline ModelSpec deepseek_v3(int layers) {
  ModelSpec m = deepseek_v2(layers);
  m.name = "deepseek-v3";
  m.hidden = 7168;
  m.ffn = 18432;
  m.vocab = 129280;
  m.moe->experts = 256;
  m.moe->top_k = 8;
  m.moe->ffn = 2048;
  m.moe->shared_ffn = 2048;
  return m;
}

inline ClusterSpec node(int devices, int nodes = 1) {
  ClusterSpec c;
  c.name = "test";
  TierSpec inner;
  inner.name = "node";
  inner.fanout = devices;
  inner.link.bandwidth = BytesPerSecond(450e9);
  TierSpec outer;
  outer.name = "leaf";
  outer.fanout = nodes;
  outer.link.bandwidth = BytesPerSecond(50e9);
  outer.fabric = Fabric::rail;
  c.tiers = {inner, outer};
  return c;
}

/// Megatron-Core with TransformerEngine 2.11 as in the SimuMax v1.2 B200 runs: docs/formulas.md, "Memory".
inline Semantics megatron() {
  Semantics s;
  s.name = "megatron-core";
  s.vocab_extra = 1; // NullTokenizer adds an end-of-document token
  s.dummy_weight_gradients = true;
  s.head_weight_gradient_copy = true;
  s.keeps_input_gradient = true;
  s.ulysses_keeps_output = true;
  s.workspace_head = Bytes(static_cast<std::int64_t>(50.3 * kMiB));
  s.workspace = Bytes(35 * kMiB);
  return s;
}

inline Plan plan(ModelSpec model, int world, int sequence, int global_batch) {
  Plan p;
  p.model = std::move(model);
  p.cluster = node(std::min(world, 8), std::max(1, world / 8));
  p.job.sequence_length = sequence;
  p.job.global_batch = global_batch;
  p.job.cross_entropy = CrossEntropy::fused;
  return p;
}

inline double mib(Bytes bytes) {
  return static_cast<double>(bytes.value) / kMiB;
}

} // namespace foretrain::fixtures
