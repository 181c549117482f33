#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"

namespace foretrain {

/// Family of the implementation that a framework belongs to: decides which tensors a layer saves and how gradients are
/// bucketed. A framework of a known family is a data file; a new family is code in core/program.
enum class SemanticsFamily {
  megatron,  ///< Megatron-Core with TransformerEngine, Megatron-DeepSpeed, NeMo
  fsdp,      ///< FSDP1/FSDP2: torchtitan, Composer
  zero,      ///< DeepSpeed ZeRO engines
  foretrain, ///< our own executor
};

/// Outputs inside a layer that a policy by operator may keep; gate and up are the halves of a gated up projection.
enum class KeptOutput { query, key, value, attention, attention_out, gate, up, down };

/// What layers and head of a framework can be beyond norm, half and sum in turn.
enum class BlockFeature {
  parallel,            ///< both halves read one input and are summed
  joint_parallel,      ///< and share one tensor-parallel reduction; else each half reduces its own output
  norms_after,         ///< norms after the halves
  norms_around,        ///< norms before and after them
  softcap,             ///< capped scores and logits
  qk_norms,            ///< norms of queries and keys, over each head
  wide_qk_norms,       ///< the same over all heads
  split_wide_qk_norms, ///< and with heads split by tensor parallelism: sums of squares are added up over the ranks
};

/// How a framework behaves: what stays in memory, what overlaps, what is padded, which layouts it accepts. Read from
/// data/semantics/*.json; every value there has its source in `sources`.
struct Semantics {
  std::string name;
  SemanticsFamily family = SemanticsFamily::megatron;
  std::string version;

  // Parameters and padding
  int vocab_multiple = 128;         ///< the table is padded to this times tp
  int vocab_extra = 0;              ///< rows the tokenizer adds before padding
  DType parameter = DType::bf16;    ///< resident dtype of weights under bf16 training (fsdp keeps fp32 shards)
  bool full_gradient_buffer = true; ///< gradients stay unsharded with sharded optimizer state (ZeRO-1 in memory)
  bool master_weights = true;       ///< fp32 copy beside half-precision weights

  // Memory that is easy to miss
  bool dummy_weight_gradients = false;    ///< one cached gradient per distinct weight shape (TransformerEngine)
  bool half_gradients_beside = false;     ///< bf16 gradients stay beside those in fp32 (DeepSpeed's BF16_Optimizer)
  bool head_weight_gradient_copy = false; ///< head backward allocates a weight-sized gradient
  bool keeps_logits = false;              ///< the loop still holds the logits of the micro-batch before
  bool value_in_mixed = false;            ///< values stay a view of the joint projection, which stays with them
  bool orders_attention_output = false;   ///< with several sequences attention's output stays in two orders
  bool keeps_input_gradient = false;      ///< the previous micro-batch's input gradient stays referenced with pp > 1
  bool gathers_before_saving = false;     ///< sequence parallel: a linear layer keeps its gathered input
  std::vector<std::string> batch_first_when_deterministic; ///< device architectures where deterministic attention takes
                                                           ///< batch-first order and keeps its output in both orders
  std::vector<std::string> score_gradients_when_deterministic; ///< device architectures where deterministic attention
                                                               ///< writes the scores' gradients to memory
  bool fills_when_deterministic = false; ///< deterministic algorithms fill every new tensor before it is written
  bool ulysses_keeps_output = false;     ///< the attention output before the all-to-all stays saved
  bool quantised_activations = true;     ///< 8- and 4-bit linear layers keep their input in that type
  bool quantised_own_copy = false;       ///< delayed scaling: also where something keeps it in 16 bits anyway
  bool quantised_weight_cache = true;    ///< the quantised weight stays beside the 16-bit one
  bool eager_gate_copy = false;          ///< without compilation the activated gate stays saved beside gate and up
  std::vector<KeptOutput>
      operators_kept; ///< by recomputation of operators; what compilation drops: see `compiled_drops`
  std::vector<KeptOutput> compiled_drops; ///< of these, those that compiled code does not keep
  Bytes workspace_head{0};                ///< fitted: library workspaces on the stage with the head
  Bytes workspace{0};                     ///< fitted: library workspaces on other stages
  double moe_copies = 0; ///< copies of the rows that a rank's experts receive, once per rank, cause not identified
  CrossEntropy cross_entropy = CrossEntropy::vocab_parallel;
  Bytes context{0};                ///< device context and kernels, outside the allocator
  Bytes communicator{0};           ///< per active communicator, outside the allocator
  bool replays_allocator = false;  ///< reserved memory comes from the caching allocator's rules, not from a share
  double fragmentation = 0.04;     ///< (reserved - allocated) / allocated
  double fragmentation_pp = 0.065; ///< with pp > 1
  double fragmentation_moe = 0.06;
  double fragmentation_long = 0.07;                   ///< with cp > 1
  double fragmentation_expandable = 0.02;             ///< with expandable segments
  std::optional<CrossEntropy> cross_entropy_compiled; ///< loss where the job is compiled

  // Gradient buckets (elements) and gathers
  std::int64_t bucket_floor = 40'000'000; ///< bucket = max(floor, per_rank * dp)
  std::int64_t bucket_per_rank = 1'000'000;
  std::int64_t wide_bucket = 0;         ///< elements reduced at once through an fp32 copy of them; 0: not so
  bool buckets_only_first_chunk = true; ///< stages > 0 and chunks > 0 reduce one bucket after their backward
  std::int64_t reduce_bucket = 0;       ///< zero family: elements of the persistent reduce bucket, 0 = none
  std::int64_t gather_bucket = 0;
  bool reshard_after_forward = true; ///< default for sharded parameters without pipeline
  bool reshard_after_forward_pp = false;

  // Overlap and order
  bool p2p_blocking_1f1b = true; ///< non-interleaved schedules do not overlap transfers
  bool p2p_parts = false; ///< without sequence parallelism tp ranks send a part each, put together by the receivers
  bool post_validation = false; ///< split backwards: stages step their optimizers before the global norm is known
  bool tp_overlap = true;       ///< can pipeline tensor-parallel collectives with GEMMs
  bool dp_gradient_overlap = true;
  bool dp_parameter_overlap = true;
  bool moe_overlap = true;
  bool dgrad_reduce_overlap = true; ///< tensor-parallel reduce of input gradients beside the weight gradient
  Seconds host_per_layer{0};        ///< host time to launch one layer forward (kernels cannot go faster than this)
  Seconds moe_host_sync{0};         ///< device synchronisation of a dropless dispatch

  // What its configuration can express
  std::vector<std::string> schedules; ///< empty: no pipeline
  std::vector<ShardingKind> sharding;
  std::vector<ContextKind> context_parallel; ///< empty: cp = 1
  std::vector<DispatchKind> dispatch;        ///< empty: ep = 1
  std::vector<RecomputeKind> recompute;
  std::vector<RecomputeModule> recompute_modules;
  std::vector<Precision> precisions;
  std::vector<BlockFeature> block_features;
  bool offload_optimizer = false;
  bool kv_replication = false; ///< tp > kv_heads replicates keys and values
  bool tied_with_pp = true;
  bool sequence_parallel = true; ///< norms and residuals may be split over tp
  bool expert_parallel = true;
  bool expert_tensor_parallel = true;
  bool etp_defaults_to_tp = false;
  bool ep_folds_over_tp = true;          ///< false: experts fold over cp * dp only
  bool ep_needs_sp = false;              ///< ep > 1 with tp > 1 needs sequence parallel
  bool sequence_parallel_always = false; ///< tp > 1 implies sequence parallel
  bool pp_with_gradient_sharding = true;
  bool pp_with_parameter_sharding = true;
  bool interleaved_needs_even_layers = true;
  bool micro_batch_groups = false; ///< the size of the interleaved schedule's groups can be chosen
  bool uneven_stages = true;
  bool ends_are_layers = false; ///< embedding, final norm and head count as layers where stages are cut evenly

  std::map<std::string, std::string> sources; ///< key -> where its value comes from
  bool operator==(const Semantics&) const = default;
};

} // namespace foretrain
