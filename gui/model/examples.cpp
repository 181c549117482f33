// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/examples.h"

#include <array>

namespace foretrain::gui {

std::span<const Example> examples() {
  static constexpr std::array<Example, 3> list = {{
      {"llama3-8b", "Llama 3 8B on one node", "8 H100, 8,192 tokens: a small space, searched in a moment.",
       R"({"model": "llama3-8b", "cluster": {"preset": "dgx-h100", "devices": 8},
           "job": {"sequence_length": 8192, "global_batch": 64}})"},
      {"llama3-70b", "Llama 3 70B on 64 H100", "Which layouts fit in 80 GB, and which of them is fastest.",
       R"({"model": "llama3-70b", "cluster": {"preset": "dgx-h100", "devices": 64},
           "job": {"sequence_length": 8192, "global_batch": 256},
           "space": {"tp": [1, 2, 4, 8], "pp": [1, 2, 4, 8], "cp": [1, 2], "micro_batch": [1, 2],
                     "sharding": ["optimizer"]}})"},
      {"mixtral-8x7b", "Mixtral 8×7B, a mixture of experts", "64 H100: expert parallelism against tensor parallelism.",
       R"({"model": "mixtral-8x7b", "cluster": {"preset": "dgx-h100", "devices": 64},
           "job": {"sequence_length": 4096, "global_batch": 256},
           "space": {"tp": [1, 2, 4, 8], "pp": [1, 2, 4], "cp": [1], "micro_batch": [1, 2],
                     "sharding": ["optimizer"]}})"},
  }};
  return list;
}

} // namespace foretrain::gui
