#pragma once

#include <span>
#include <string_view>

#include "core/spec/huggingface/config.h"

namespace foretrain::huggingface {

/// One value of `model_type` that has a formula.
struct Architecture {
  std::string_view model_type;
  std::string_view class_stem; ///< `architectures[0]` without its suffix: "Llama" of LlamaForCausalLM
  void (*read)(Config& config, ModelSpec& model);
  std::string_view text_type = {}; ///< of a wrapper: `model_type` of the nested text configuration when it has none
};

/// Every architecture, in one list (all.cpp).
[[nodiscard]] std::span<const Architecture> architectures();

/// A `model_type` that is known and has no formula, with the reason.
struct Refused {
  std::string_view model_type;
  std::string_view class_stem;
  std::string_view reason;
};
[[nodiscard]] std::span<const Refused> refused_architectures();

/// What a wrapper's tower holds, as a note on the model. `outer` is the configuration around the text.
void note_towers(const Json& outer, std::string_view model_type, ModelSpec& model);

void read_llama(Config& config, ModelSpec& model);
void read_mistral(Config& config, ModelSpec& model);
void read_mixtral(Config& config, ModelSpec& model);
void read_phi3(Config& config, ModelSpec& model);
void read_olmo2(Config& config, ModelSpec& model);
void read_smollm3(Config& config, ModelSpec& model);
void read_llama4(Config& config, ModelSpec& model);

void read_qwen2(Config& config, ModelSpec& model);
void read_qwen2_moe(Config& config, ModelSpec& model);
void read_qwen3(Config& config, ModelSpec& model);
void read_qwen3_moe(Config& config, ModelSpec& model);
void read_qwen3_next(Config& config, ModelSpec& model);
void read_qwen3_5(Config& config, ModelSpec& model);
void read_qwen3_5_moe(Config& config, ModelSpec& model);

void read_deepseek(Config& config, ModelSpec& model);
void read_deepseek_v2(Config& config, ModelSpec& model);
void read_deepseek_v3(Config& config, ModelSpec& model);
void read_deepseek_v32(Config& config, ModelSpec& model);
void read_kimi_k2(Config& config, ModelSpec& model);
void read_glm_moe_dsa(Config& config, ModelSpec& model);

void read_glm4_moe(Config& config, ModelSpec& model);
void read_gpt_oss(Config& config, ModelSpec& model);
void read_minimax(Config& config, ModelSpec& model);
void read_minimax_m2(Config& config, ModelSpec& model);
void read_nemotron_h(Config& config, ModelSpec& model);

void read_gemma2(Config& config, ModelSpec& model);
void read_gemma3(Config& config, ModelSpec& model);

void read_gpt2(Config& config, ModelSpec& model);
void read_gpt_neox(Config& config, ModelSpec& model);
void read_opt(Config& config, ModelSpec& model);
void read_bloom(Config& config, ModelSpec& model);
void read_falcon(Config& config, ModelSpec& model);

} // namespace foretrain::huggingface
