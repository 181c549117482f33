#include "planner/validate/split.h"

#include <fmt/format.h>

namespace foretrain::validation {

std::string group_of(const RowFeatures& features) {
  return fmt::format("{}|{}|{}", features.model, features.device, features.devices);
}

/// FNV-1a of the seed's bytes and the group's name: the same on every machine.
bool is_held_out(const RowFeatures& features) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&hash](std::uint8_t byte) {
    hash ^= byte;
    hash *= 0x100000001b3ULL;
  };
  for (int shift = 0; shift < 64; shift += 8) add(static_cast<std::uint8_t>(kSplitSeed >> shift));
  for (const char c : group_of(features)) add(static_cast<std::uint8_t>(c));
  // The low bits of FNV-1a follow the last letters; fold the high ones in.
  return (hash ^ hash >> 32) % kSplitParts == 0;
}

} // namespace foretrain::validation
