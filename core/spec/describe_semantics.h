#pragma once

#include <algorithm>

#include "core/base/describe.h"
#include "core/spec/describe_job.h"
#include "core/spec/describe_layout.h"
#include "core/spec/semantics.h"

/// How semantics are read and written. Included by files that do so, never by headers.
namespace foretrain {

template <> struct EnumNames<SemanticsFamily> {
  static constexpr std::array names = {
      std::pair{SemanticsFamily::megatron, "megatron"}, std::pair{SemanticsFamily::fsdp, "fsdp"},
      std::pair{SemanticsFamily::zero, "zero"}, std::pair{SemanticsFamily::foretrain, "foretrain"}};
};

template <> struct EnumNames<KeptOutput> {
  static constexpr std::array names = {std::pair{KeptOutput::query, "query"},
                                       std::pair{KeptOutput::key, "key"},
                                       std::pair{KeptOutput::value, "value"},
                                       std::pair{KeptOutput::attention, "attention"},
                                       std::pair{KeptOutput::attention_out, "attention-out"},
                                       std::pair{KeptOutput::gate, "gate"},
                                       std::pair{KeptOutput::up, "up"},
                                       std::pair{KeptOutput::down, "down"}};
};

template <> struct EnumNames<BlockFeature> {
  static constexpr std::array names = {std::pair{BlockFeature::parallel, "parallel"},
                                       std::pair{BlockFeature::joint_parallel, "joint-parallel"},
                                       std::pair{BlockFeature::norms_after, "norms-after"},
                                       std::pair{BlockFeature::norms_around, "norms-around"},
                                       std::pair{BlockFeature::softcap, "softcap"},
                                       std::pair{BlockFeature::qk_norms, "qk-norms"},
                                       std::pair{BlockFeature::wide_qk_norms, "wide-qk-norms"},
                                       std::pair{BlockFeature::split_wide_qk_norms, "split-wide-qk-norms"}};
};

namespace detail {
constexpr auto bytes(const char* key, Bytes Semantics::*pointer, const char* doc) {
  return optional(key, pointer, doc).between(0, 1e15);
}
constexpr auto share(const char* key, double Semantics::*pointer, const char* doc) {
  return optional(key, pointer, doc).between(0, 10);
}
constexpr auto elements(const char* key, std::int64_t Semantics::*pointer, const char* doc) {
  return optional(key, pointer, doc).between(0, 1e15);
}
} // namespace detail

template <> struct Described<Semantics> {
  using T = Semantics;
  static constexpr const char* name = "semantics";
  static constexpr const char* doc = "How a training framework behaves; every value has its source in `sources`.";
  static constexpr auto members = std::tuple{
      required("name", &T::name, "Name, lower case with dashes."),
      required("family", &T::family, "Family of implementations: decides what a layer saves and how buckets go."),
      optional("version", &T::version, "Version that the values describe."),
      optional("vocab_multiple", &T::vocab_multiple, "The table is padded to this times tp.").between(1, 1e6),
      optional("vocab_extra", &T::vocab_extra, "Rows the tokenizer adds before padding.").between(0, 1e6),
      optional("parameter", &T::parameter, "Resident type of weights under half-precision training."),
      optional("full_gradient_buffer", &T::full_gradient_buffer, "Gradients stay whole with sharded optimizer state."),
      optional("master_weights", &T::master_weights, "An fp32 copy beside half-precision weights."),
      optional("dummy_weight_gradients", &T::dummy_weight_gradients, "One cached gradient per distinct weight shape."),
      optional("half_gradients_beside", &T::half_gradients_beside, "Gradients in bf16 stay beside those in fp32."),
      optional("head_weight_gradient_copy", &T::head_weight_gradient_copy,
               "The head's backward allocates a weight-sized gradient."),
      optional("keeps_logits", &T::keeps_logits, "The loop still holds the logits of the micro-batch before."),
      optional("value_in_mixed", &T::value_in_mixed,
               "Values stay a view of the joint projection of queries, keys and values, which stays with them."),
      optional("orders_attention_output", &T::orders_attention_output,
               "With several sequences in a micro-batch attention's output stays in two orders."),
      optional("keeps_input_gradient", &T::keeps_input_gradient,
               "The previous micro-batch's input gradient stays with pp > 1."),
      optional("gathers_before_saving", &T::gathers_before_saving,
               "Sequence parallelism: a linear layer keeps its gathered input."),
      optional("batch_first_when_deterministic", &T::batch_first_when_deterministic,
               "Device architectures where deterministic attention keeps its output in two orders."),
      optional("score_gradients_when_deterministic", &T::score_gradients_when_deterministic,
               "Device architectures where deterministic attention writes the scores' gradients to memory."),
      optional("fills_when_deterministic", &T::fills_when_deterministic,
               "Deterministic algorithms fill every new tensor before it is written."),
      optional("ulysses_keeps_output", &T::ulysses_keeps_output,
               "The attention output before the all-to-all stays saved."),
      optional("quantised_activations", &T::quantised_activations,
               "8- and 4-bit linear layers keep their input in that type."),
      optional("quantised_own_copy", &T::quantised_own_copy,
               "Under delayed scaling also inputs that something else keeps in 16 bits anyway."),
      optional("quantised_weight_cache", &T::quantised_weight_cache,
               "The quantised weight stays beside the 16-bit one."),
      optional("eager_gate_copy", &T::eager_gate_copy,
               "Without compilation the activated gate stays saved beside gate and up."),
      optional("operators_kept", &T::operators_kept, "Outputs that recomputation of operators keeps."),
      optional("compiled_drops", &T::compiled_drops, "Of these, those that compiled code does not keep."),
      detail::bytes("workspace_head", &T::workspace_head, "Library workspaces on the stage with the head."),
      detail::bytes("workspace", &T::workspace, "Library workspaces on other stages."),
      optional("moe_copies", &T::moe_copies, "Copies of the rows that a rank's experts receive, once per rank.")
          .between(0, 100),
      optional("cross_entropy", &T::cross_entropy, "Loss kernel where the job names none."),
      detail::bytes("context", &T::context, "Device context and kernels, outside the allocator."),
      detail::bytes("communicator", &T::communicator, "Per active communicator, outside the allocator."),
      optional("replays_allocator", &T::replays_allocator,
               "Reserved memory is what the caching allocator's rules make of the step's tensors, which eager autograd "
               "makes one by one; else allocated times 1 + fragmentation."),
      detail::share("fragmentation", &T::fragmentation, "(reserved - allocated) / allocated."),
      detail::share("fragmentation_pp", &T::fragmentation_pp, "The same with pp > 1."),
      detail::share("fragmentation_moe", &T::fragmentation_moe, "The same for MoE models."),
      detail::share("fragmentation_long", &T::fragmentation_long, "The same with cp > 1."),
      optional("cross_entropy_compiled", &T::cross_entropy_compiled,
               "Loss kernel of compiled jobs that name none; left out = the same."),
      detail::share("fragmentation_expandable", &T::fragmentation_expandable, "The same with expandable segments."),
      detail::elements("bucket_floor", &T::bucket_floor, "Elements of a gradient bucket, at least."),
      detail::elements("bucket_per_rank", &T::bucket_per_rank, "Elements of a gradient bucket per data-parallel rank."),
      detail::elements("wide_bucket", &T::wide_bucket,
                       "Elements reduced at once through an fp32 copy of them; 0 = not so."),
      optional("buckets_only_first_chunk", &T::buckets_only_first_chunk,
               "Stages and chunks after the first reduce one bucket after their backward."),
      detail::elements("reduce_bucket", &T::reduce_bucket, "Elements of the persistent reduce bucket; 0 = none."),
      detail::elements("gather_bucket", &T::gather_bucket, "Elements of the persistent gather bucket; 0 = none."),
      optional("reshard_after_forward", &T::reshard_after_forward, "Default for sharded parameters without pipeline."),
      optional("reshard_after_forward_pp", &T::reshard_after_forward_pp, "The same with a pipeline."),
      optional("p2p_blocking_1f1b", &T::p2p_blocking_1f1b, "Schedules without chunks do not overlap transfers."),
      optional(
          "p2p_parts", &T::p2p_parts,
          "Without sequence parallelism each tensor-parallel rank sends its part of what passes between stages, and "
          "those that receive gather it."),
      optional("post_validation", &T::post_validation,
               "With a split backward no stage waits for the global gradient norm: it steps its optimizer, goes on to "
               "the next step and takes it back where the norm says so."),
      optional("tp_overlap", &T::tp_overlap, "Can pipeline tensor-parallel collectives with matrix products."),
      optional("dp_gradient_overlap", &T::dp_gradient_overlap, "Can overlap the gradient reduction."),
      optional("dp_parameter_overlap", &T::dp_parameter_overlap, "Can overlap the parameter gather."),
      optional("moe_overlap", &T::moe_overlap, "Can overlap expert all-to-all with another micro-batch."),
      optional("dgrad_reduce_overlap", &T::dgrad_reduce_overlap, "Reduces input gradients beside the weight gradient."),
      optional("host_per_layer", &T::host_per_layer, "Host time to launch a layer's forward.").between(0, 1),
      optional("moe_host_sync", &T::moe_host_sync, "Device synchronisation of a dropless dispatch.").between(0, 1),
      optional("schedules", &T::schedules, "Pipeline schedules it has; empty = no pipeline."),
      optional("sharding", &T::sharding, "Sharding it has."),
      optional("context_parallel", &T::context_parallel, "Context parallelism it has; empty = none."),
      optional("dispatch", &T::dispatch, "Expert dispatch it has; empty = none."),
      optional("recompute", &T::recompute, "Recomputation it has."),
      optional("recompute_modules", &T::recompute_modules, "Modules of selective recomputation."),
      optional("precisions", &T::precisions, "Precisions it has."),
      optional("block_features", &T::block_features, "What its layers can be beyond norm, half and sum in turn."),
      optional("offload_optimizer", &T::offload_optimizer, "Optimizer state may live on the host."),
      optional("kv_replication", &T::kv_replication, "tp > kv_heads replicates keys and values."),
      optional("tied_with_pp", &T::tied_with_pp, "Tied tables may be split over a pipeline."),
      optional("sequence_parallel", &T::sequence_parallel, "Norms and residuals may be split over tp."),
      optional("expert_parallel", &T::expert_parallel, "Has expert parallelism."),
      optional("expert_tensor_parallel", &T::expert_tensor_parallel, "Experts may have their own tensor parallelism."),
      optional("etp_defaults_to_tp", &T::etp_defaults_to_tp, "etp is tp where it is not given."),
      optional("ep_folds_over_tp", &T::ep_folds_over_tp, "Experts fold over tp * cp * dp; else over cp * dp."),
      optional("ep_needs_sp", &T::ep_needs_sp, "ep > 1 with tp > 1 needs sequence parallelism."),
      optional("sequence_parallel_always", &T::sequence_parallel_always, "tp > 1 implies sequence parallelism."),
      optional("pp_with_gradient_sharding", &T::pp_with_gradient_sharding, "A pipeline with sharded gradients."),
      optional("pp_with_parameter_sharding", &T::pp_with_parameter_sharding, "A pipeline with sharded parameters."),
      optional("interleaved_needs_even_layers", &T::interleaved_needs_even_layers,
               "Interleaving needs layers that divide evenly."),
      optional("micro_batch_groups", &T::micro_batch_groups,
               "The size of the interleaved schedule's groups of micro-batches can be chosen."),
      optional("uneven_stages", &T::uneven_stages, "Stages may have different numbers of layers."),
      optional("ends_are_layers", &T::ends_are_layers,
               "Embedding, final norm and head count as layers where stages are cut evenly."),
      optional("sources", &T::sources, "Key -> where its value comes from.")};
  static Result<void> check(const T& semantics, const Where& where) {
    const std::vector<std::string> kinds = Described<ScheduleChoice>::kinds();
    for (std::size_t i = 0; i < semantics.schedules.size(); ++i)
      if (std::find(kinds.begin(), kinds.end(), semantics.schedules[i]) == kinds.end())
        return fail(where.at("schedules").at(std::to_string(i)).text(),
                    fmt::format("'{}' is unknown", semantics.schedules[i]), hint_for(semantics.schedules[i], kinds));
    std::vector<std::string> keys;
    std::apply([&](const auto&... member) { (keys.emplace_back(member.key), ...); }, members);
    for (const auto& [key, text] : semantics.sources)
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        return fail(where.at("sources").at(key).text(), fmt::format("'{}' is no key of semantics", key),
                    hint_for(key, keys));
    return {};
  }
};

} // namespace foretrain
