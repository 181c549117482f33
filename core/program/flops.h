#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/spec/cluster.h"
#include "core/spec/job.h"
#include "core/spec/model.h"

/// Training FLOP per token as the codes in use count them. They differ by up to a fifth for the same run, so a number
/// is never shown without its convention. Formulas and sources: docs/formulas.md, "FLOPs".
namespace foretrain {

enum class FlopConvention {
  megatron,          ///< Megatron-LM num_floating_point_operations: causal half, padded head, active experts
  k22,               ///< Korthikanti et al. 2022, model FLOP: attention not halved, ffn = 4h
  k22_hfu_full,      ///< the same, hardware FLOP with full recomputation
  k22_hfu_selective, ///< the same, hardware FLOP with attention recomputed
  palm,              ///< PaLM appendix B: 6N with embeddings, attention not halved
  torchtitan,        ///< 6N without the input table, attention not halved
  llm_foundry_star,  ///< "MFU*": 6N with embeddings, no attention
  llm_foundry,       ///< "MFU": adds attention, not halved
  llm_foundry_hfu,   ///< "HFU": everything four thirds
  nanogpt,           ///< as PaLM, without learned positions
  six_n,             ///< 6N with embeddings
};
inline constexpr int kFlopConventions = 11;

/// "megatron", "k22-hfu-full", …: shown beside every number.
[[nodiscard]] std::string_view id_of(FlopConvention convention);
[[nodiscard]] std::array<FlopConvention, kFlopConventions> all_flop_conventions();
/// Error: unknown, with the nearest.
[[nodiscard]] Result<FlopConvention> flop_convention_from(std::string_view text, const std::string& where);

struct FlopShape {
  int sequence_length = 0;
  std::vector<LengthBin> packed; ///< Megatron counts the squares of packed lengths; the others the full length
  int padded_vocab = 0;          ///< rows of the head (megatron); 0 = the model's vocabulary
  std::optional<LoraChoice> lora = std::nullopt; ///< megatron: frozen weights count forward and input gradient alone
};

/// FLOP per token of a training step, forward and backward, whole model. N counts the experts a token visits.
/// Errors: a token mixer without a FLOP formula (named; six_n and llm_foundry_star need none), a model that a k22
/// formula does not describe.
[[nodiscard]] Result<double> flop_per_token(const ModelSpec& model, FlopConvention convention, const FlopShape& shape);

/// Dense peak that utilisation is stated against: of the precision's products, never with sparsity.
/// Error: the device's figure is unknown, by name.
[[nodiscard]] Result<FlopPerSecond> dense_peak(const DeviceSpec& device, Precision precision);

/// Utilisation in percent: FLOP per token · tokens per second and device / peak.
[[nodiscard]] double utilisation_percent(double flop_per_token, double tokens_per_s_per_device, FlopPerSecond peak);

} // namespace foretrain
