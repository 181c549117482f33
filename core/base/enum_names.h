#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foretrain {

/// Specialise with `static constexpr std::array names = {std::pair{E::a, "a"}, …}` for each enum that is read.
/// Optional: `refused`, pairs of a name that users may expect and why there is none such.
template <class E> struct EnumNames;

template <class E> [[nodiscard]] std::string_view name_of(E value) {
  for (const auto& [enumerator, name] : EnumNames<E>::names)
    if (enumerator == value) return name;
  return "?";
}
template <class E> [[nodiscard]] std::optional<E> enum_from(std::string_view text) {
  for (const auto& [enumerator, name] : EnumNames<E>::names)
    if (text == name) return enumerator;
  return std::nullopt;
}
template <class E> [[nodiscard]] std::vector<std::string> enum_ids() {
  std::vector<std::string> ids;
  for (const auto& [enumerator, name] : EnumNames<E>::names) ids.emplace_back(name);
  return ids;
}

} // namespace foretrain
