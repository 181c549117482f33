#pragma once

#include <string>

#include "core/base/json.h"
#include "core/spec/plan.h"
#include "core/spec/prediction.h"

namespace foretrain::cli {

/// "llama3-70b on 64 × h100-sxm-80gb (dgx-h100) · 8192 tokens · batch 256 · bf16 · megatron-core".
[[nodiscard]] std::string job_line(const ModelSpec& model, const ClusterSpec& cluster, const JobSpec& job);

/// "46,702,792,704 parameters, 12,879,925,248 of them active", and what its reader left out.
[[nodiscard]] std::string model_lines(const ModelSpec& model, int width);

/// The same for scripts: `parameters`, `active_parameters`, `notes`.
[[nodiscard]] Json model_document(const ModelSpec& model);

/// Where the memory of each stage goes; stages with equal figures share a row. Parts that nobody has are left out, then
/// those that take least until the table fits.
[[nodiscard]] std::string memory_table(const Prediction& prediction, int width);

/// The step's parts, largest first, with a bar.
[[nodiscard]] std::string time_table(const Prediction& prediction, int width);

/// "fits: 12.3 s per step, 1,234 tokens/s/GPU, 412 TFLOP/s, 41.7 % MFU (megatron) …".
[[nodiscard]] std::string summary_lines(const Prediction& prediction, int width);

/// "  out-of-memory: stage 0 needs …; nearest: tp 4", without a newline.
[[nodiscard]] std::string rejection_line(const Rejection& rejection);

} // namespace foretrain::cli
