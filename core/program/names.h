#pragma once

#include <string>
#include <string_view>

#include "core/program/program.h"

/// Names of the Program's closed sets, as texts and JSON show them.
namespace foretrain {

[[nodiscard]] std::string_view id_of(Stream value);
[[nodiscard]] std::string_view id_of(OpKind value);
[[nodiscard]] std::string_view id_of(Segment value);
[[nodiscard]] std::string_view id_of(Collective value);
[[nodiscard]] std::string_view id_of(KernelKind value);
[[nodiscard]] std::string_view id_of(GemmRole value);
[[nodiscard]] std::string_view id_of(BufferScope value);
[[nodiscard]] std::string_view id_of(BlockKind value);
[[nodiscard]] std::string_view id_of(When value);
[[nodiscard]] std::string_view id_of(InstructionKind value);
[[nodiscard]] std::string_view id_of(Pass value);
[[nodiscard]] std::string_view id_of(Group value);

/// The id as timelines and tables show it: "ffn_up" as "ffn up".
[[nodiscard]] std::string words_of(std::string_view id);

} // namespace foretrain
