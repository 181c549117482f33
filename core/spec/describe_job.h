#pragma once

#include "core/base/describe.h"
#include "core/spec/job.h"

/// How a job is read and written. Included by files that do so, never by headers.
namespace foretrain {

template <> struct EnumNames<DType> {
  static constexpr std::array names = {std::pair{DType::fp64, "fp64"},   std::pair{DType::fp32, "fp32"},
                                       std::pair{DType::bf16, "bf16"},   std::pair{DType::fp16, "fp16"},
                                       std::pair{DType::fp8, "fp8"},     std::pair{DType::fp4, "fp4"},
                                       std::pair{DType::int64, "int64"}, std::pair{DType::int8, "int8"}};
};
template <> struct EnumNames<Precision> {
  static constexpr std::array names = {std::pair{Precision::bf16, "bf16"},
                                       std::pair{Precision::fp16, "fp16"},
                                       std::pair{Precision::fp32, "fp32"},
                                       std::pair{Precision::fp64, "fp64"},
                                       std::pair{Precision::fp8_delayed, "fp8-delayed"},
                                       std::pair{Precision::fp8_current, "fp8-current"},
                                       std::pair{Precision::fp8_blockwise, "fp8-blockwise"},
                                       std::pair{Precision::mxfp8, "mxfp8"},
                                       std::pair{Precision::nvfp4, "nvfp4"}};
};
template <> struct EnumNames<OptimizerKind> {
  static constexpr std::array names = {
      std::pair{OptimizerKind::adamw, "adamw"}, std::pair{OptimizerKind::lion, "lion"},
      std::pair{OptimizerKind::sgd, "sgd"},     std::pair{OptimizerKind::adafactor, "adafactor"},
      std::pair{OptimizerKind::muon, "muon"},   std::pair{OptimizerKind::adamw_8bit, "adamw-8bit"}};
};
template <> struct EnumNames<RoutingKind> {
  static constexpr std::array names = {std::pair{RoutingKind::balanced, "balanced"},
                                       std::pair{RoutingKind::imbalanced, "imbalanced"}};
  static constexpr std::array refused = {
      std::pair{"real", "no published measurement says how unevenly a trained router spreads tokens; write imbalanced "
                        "with a factor of your own"}};
};
template <> struct EnumNames<AttentionKernel> {
  static constexpr std::array names = {std::pair{AttentionKernel::flash, "flash"},
                                       std::pair{AttentionKernel::unfused, "unfused"},
                                       std::pair{AttentionKernel::eager, "eager"}};
};
template <> struct EnumNames<NormKernel> {
  static constexpr std::array names = {std::pair{NormKernel::fused, "fused"},
                                       std::pair{NormKernel::unfused, "unfused"}};
};
template <> struct EnumNames<CrossEntropy> {
  static constexpr std::array names = {
      std::pair{CrossEntropy::fused, "fused"}, std::pair{CrossEntropy::vocab_parallel, "vocab-parallel"},
      std::pair{CrossEntropy::plain, "plain"}, std::pair{CrossEntropy::gathered, "gathered"},
      std::pair{CrossEntropy::compiled, "compiled"}};
};

template <> struct Described<OptimizerChoice> {
  using T = OptimizerChoice;
  static constexpr const char* name = "optimizer";
  static constexpr const char* doc = "The optimizer and its state.";
  static constexpr auto members =
      std::tuple{optional("kind", &T::kind, "Which optimizer."),
                 optional("moments", &T::moments, "Type of the moments.").only_for("adamw lion sgd muon"),
                 optional("momentum", &T::momentum, "SGD keeps a momentum.").only_for("sgd")};
  static Result<void> check(const T& optimizer, const Where& where) {
    if (optimizer.moments != DType::fp64 && optimizer.moments != DType::fp32 && optimizer.moments != DType::bf16 &&
        optimizer.moments != DType::fp16 && optimizer.moments != DType::fp8)
      return fail(where.at("moments").text(), fmt::format("'{}' cannot hold moments", name_of(optimizer.moments)),
                  "one of: fp64, fp32, bf16, fp16, fp8");
    return {};
  }
};

template <> struct Described<RoutingChoice> {
  using T = RoutingChoice;
  static constexpr const char* name = "routing";
  static constexpr const char* doc = "How tokens spread over experts.";
  static constexpr auto members =
      std::tuple{optional("kind", &T::kind, "Balanced, or with a busiest expert rank."),
                 optional("imbalance", &T::imbalance, "Tokens of the busiest expert rank over the mean.")
                     .between(1, 1e5)
                     .only_for("imbalanced"),
                 optional("capacity_factor", &T::capacity_factor,
                          "Tokens above this times the mean are dropped, below padded; left out = dropless.")
                     .between(0.01, 1e5)};
};

template <> struct EnumNames<AdapterTarget> {
  static constexpr std::array names = {
      std::pair{AdapterTarget::qkv, "qkv"}, std::pair{AdapterTarget::attention_out, "attention-out"},
      std::pair{AdapterTarget::ffn_up, "ffn-up"}, std::pair{AdapterTarget::ffn_down, "ffn-down"}};
};

template <> struct Described<LoraChoice> {
  using T = LoraChoice;
  static constexpr const char* name = "lora";
  static constexpr const char* doc = "Low-rank adapters beside frozen weights.";
  static constexpr auto members =
      std::tuple{optional("rank", &T::rank, "Inner width of an adapter.").between(1, 65536),
                 optional("targets", &T::targets, "Linear layers that carry one, each once.")};
  static Result<void> check(const T& lora, const Where& where) {
    if (lora.targets.empty())
      return fail(where.at("targets").text(), "no layer carries an adapter", hint_for("", enum_ids<AdapterTarget>()));
    for (std::size_t i = 1; i < lora.targets.size(); ++i)
      if (lora.targets[i - 1] >= lora.targets[i])
        return fail(where.at("targets").at(std::to_string(i)).text(),
                    fmt::format("'{}' stands twice or out of order", name_of(lora.targets[i])),
                    "in this order: " + join(enum_ids<AdapterTarget>(), ", "));
    return {};
  }
};

template <> struct Described<LengthBin> {
  using T = LengthBin;
  static constexpr const char* name = "length_bin";
  static constexpr const char* doc = "Sequences of one length among packed ones.";
  static constexpr auto members =
      std::tuple{required("length", &T::length, "Tokens of the sequence.").between(1, 1e8),
                 required("share", &T::share, "Share of all tokens in sequences of this length.").between(0, 1)};
};

template <> struct Described<JobSpec> {
  using T = JobSpec;
  static constexpr const char* name = "job";
  static constexpr const char* doc = "What is trained, apart from the model.";
  static constexpr auto members = std::tuple{
      required("sequence_length", &T::sequence_length, "Tokens of a sequence.").between(1, 1e8),
      required("global_batch", &T::global_batch, "Sequences per optimizer step.").between(1, 1e9),
      optional("precision", &T::precision, "Recipe of weights and activations."),
      optional("quantised_weights", &T::quantised_weights,
               "8- and 4-bit recipes: weights of linear layers lie and travel in that type alone (fp8_param_gather)."),
      optional("gradient", &T::gradient, "Type in which gradients are summed and reduced."),
      optional(
          "gradient_accumulation_fusion", &T::gradient_accumulation_fusion,
          "Products of weight gradients add to the gradient buffer themselves (frameworks of Megatron's family); left "
          "out = as the semantics do."),
      optional("optimizer", &T::optimizer, "The optimizer."),
      optional("dropout", &T::dropout, "Probability.").between(0, 0.999),
      optional("routing", &T::routing, "How tokens spread over experts."),
      optional("attention", &T::attention, "Attention kernel."),
      optional("norm", &T::norm, "Norm kernel."),
      optional("deterministic", &T::deterministic, "Kernels that give the same bits every time."),
      optional("cross_entropy", &T::cross_entropy, "Loss kernel; left out = what the semantics do by default."),
      optional("compiled", &T::compiled, "Kernels are compiled (torch.compile) where the framework leaves a choice."),
      optional("lora", &T::lora, "Low-rank adapters beside frozen weights; left out = every weight is trained."),
      optional("expandable_segments", &T::expandable_segments, "Allocator setting: less fragmentation."),
      optional("vocab_extra", &T::vocab_extra,
               "Rows that the tokenizer adds before padding; left out = what the semantics say.")
          .between(0, 1e6),
      optional("semantics", &T::semantics, "Name of the framework's semantics."),
      optional("packed", &T::packed, "Lengths of packed sequences; shares add up to 1. Empty: all have full length.")};
  static Result<void> check(const T& job, const Where& where) {
    if (job.gradient != DType::fp64 && job.gradient != DType::fp32 && job.gradient != DType::bf16 &&
        job.gradient != DType::fp16)
      return fail(where.at("gradient").text(), fmt::format("'{}' cannot hold gradients", name_of(job.gradient)),
                  "one of: fp64, fp32, bf16, fp16");
    const bool low = job.precision == Precision::fp8_delayed || job.precision == Precision::fp8_current ||
                     job.precision == Precision::fp8_blockwise || job.precision == Precision::mxfp8 ||
                     job.precision == Precision::nvfp4;
    if (job.quantised_weights && !low)
      return fail(where.at("quantised_weights").text(),
                  fmt::format("precision {} quantises nothing", name_of(job.precision)),
                  "leave it out, or take an 8- or 4-bit precision");
    constexpr double kShareTolerance = 1e-6; // shares written with a few digits
    double shares = 0;
    for (const LengthBin& bin : job.packed) {
      shares += bin.share;
      if (bin.length > job.sequence_length)
        return fail(where.at("packed").text(),
                    fmt::format("length {} is more than the sequence length {}", bin.length, job.sequence_length));
    }
    if (!job.packed.empty() && std::abs(shares - 1) > kShareTolerance)
      return fail(where.at("packed").text(), fmt::format("shares add up to {:g}", shares), "they must add up to 1");
    return {};
  }
};

} // namespace foretrain
