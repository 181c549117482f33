#include <array>

#include "core/spec/huggingface/families.h"

namespace foretrain::huggingface {

std::span<const Architecture> architectures() {
  static constexpr std::array kAll = {
      Architecture{"llama", "Llama", read_llama},
      Architecture{"mistral", "Mistral", read_mistral},
      Architecture{"mistral3", "Mistral3", read_mistral, "mistral"},
      Architecture{"mixtral", "Mixtral", read_mixtral},
      Architecture{"phi3", "Phi3", read_phi3},
      Architecture{"olmo2", "Olmo2", read_olmo2},
      Architecture{"smollm3", "SmolLM3", read_smollm3},
      Architecture{"llama4", "Llama4", read_llama4, "llama4_text"},
      Architecture{"llama4_text", "Llama4Text", read_llama4},
      Architecture{"qwen2", "Qwen2", read_qwen2},
      Architecture{"qwen2_moe", "Qwen2Moe", read_qwen2_moe},
      Architecture{"qwen3", "Qwen3", read_qwen3},
      Architecture{"qwen3_moe", "Qwen3Moe", read_qwen3_moe},
      Architecture{"qwen3_vl", "Qwen3VL", read_qwen3, "qwen3_vl_text"},
      Architecture{"qwen3_vl_text", "Qwen3VLText", read_qwen3},
      Architecture{"qwen3_vl_moe", "Qwen3VLMoe", read_qwen3_moe, "qwen3_vl_moe_text"},
      Architecture{"qwen3_vl_moe_text", "Qwen3VLMoeText", read_qwen3_moe},
      Architecture{"qwen3_next", "Qwen3Next", read_qwen3_next},
      Architecture{"qwen3_5", "Qwen3_5", read_qwen3_5, "qwen3_5_text"},
      Architecture{"qwen3_5_text", "Qwen3_5Text", read_qwen3_5},
      Architecture{"qwen3_5_moe", "Qwen3_5Moe", read_qwen3_5_moe, "qwen3_5_moe_text"},
      Architecture{"qwen3_5_moe_text", "Qwen3_5MoeText", read_qwen3_5_moe},
      Architecture{"deepseek", "Deepseek", read_deepseek},
      Architecture{"deepseek_v2", "DeepseekV2", read_deepseek_v2},
      Architecture{"deepseek_v3", "DeepseekV3", read_deepseek_v3},
      Architecture{"deepseek_v32", "DeepseekV32", read_deepseek_v32},
      Architecture{"kimi_k2", "KimiK2", read_kimi_k2},
      Architecture{"kimi_k25", "KimiK25", read_kimi_k2, "kimi_k2"},
      Architecture{"glm4_moe", "Glm4Moe", read_glm4_moe},
      Architecture{"glm_moe_dsa", "GlmMoeDsa", read_glm_moe_dsa},
      Architecture{"gpt_oss", "GptOss", read_gpt_oss},
      Architecture{"minimax", "MiniMax", read_minimax},
      Architecture{"minimax_text_01", "MiniMaxText01", read_minimax},
      Architecture{"minimax_m1", "MiniMaxM1", read_minimax},
      Architecture{"minimax_m2", "MiniMaxM2", read_minimax_m2},
      Architecture{"nemotron_h", "NemotronH", read_nemotron_h},
      Architecture{"gemma2", "Gemma2", read_gemma2},
      Architecture{"gemma3", "Gemma3", read_gemma3, "gemma3_text"},
      Architecture{"gemma3_text", "Gemma3Text", read_gemma3},
      Architecture{"gpt2", "GPT2", read_gpt2},
      Architecture{"gpt_neox", "GPTNeoX", read_gpt_neox},
      Architecture{"opt", "OPT", read_opt},
      Architecture{"bloom", "Bloom", read_bloom},
      Architecture{"falcon", "Falcon", read_falcon},
      Architecture{"RefinedWeb", "RW", read_falcon},      // Falcon-40B before it was renamed
      Architecture{"RefinedWebModel", "RW", read_falcon}, // Falcon-7B before it was renamed
  };
  return kAll;
}

std::span<const Refused> refused_architectures() {
  static constexpr std::array kAll = {
      Refused{"kimi_k3", "KimiK3", "Kimi delta attention and experts on a latent width have no formula here"},
      Refused{"kimi_linear", "KimiLinear", "Kimi delta attention has no formula here"},
      Refused{"gemma4", "Gemma4",
              "per-layer inputs, shared key/value layers and a dense part beside the experts have no formula here"},
      Refused{"gemma4_text", "Gemma4Text",
              "per-layer inputs, shared key/value layers and a dense part beside the experts have no formula here"},
      Refused{"gemma3n", "Gemma3n", "per-layer embeddings and shared key/value layers have no formula here"},
      Refused{"nemotron-nas", "DeciLM",
              "block_configs gives every layer its own sizes, which a uniform model cannot hold"},
      Refused{"minimax_m3", "MiniMaxM3", "its sparse attention block has no formula here"},
      Refused{"deepseek_v4", "DeepseekV4", "hash layers and compressed attention have no formula here"},
      Refused{"mimo_v2_flash", "MiMoV2Flash", "sliding layers with their own head sizes have no formula here"},
      Refused{"step3p5", "Step3p5", "shared experts of their own width in chosen layers have no formula here"},
      Refused{"step3p7", "Step3p7", "shared experts of their own width in chosen layers have no formula here"},
      Refused{"chatglm", "ChatGLM", "its fused projections and class defaults have no formula here"},
      Refused{"mpt", "MPT", "attn_config and its class defaults have no formula here"},
      Refused{"olmo", "Olmo", "norms without weights have no formula here"},
      Refused{"granite", "Granite", "no formula here"},
      Refused{"granitemoe", "GraniteMoe", "no formula here"},
  };
  return kAll;
}

} // namespace foretrain::huggingface
