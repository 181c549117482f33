#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foretrain {

/// An open set: objects that describe themselves, each with a stable string id, in one explicit list (`all.cpp` of the
/// folder). No self-registration: the list shows the order and survives static linking.
template <class Entry> class Catalogue {
public:
  explicit Catalogue(std::vector<std::unique_ptr<const Entry>> entries) : entries_(std::move(entries)) {}

  /// The entry with this id, or null.
  [[nodiscard]] const Entry* find(std::string_view id) const {
    for (const auto& entry : entries_)
      if (entry->id() == id) return entry.get();
    return nullptr;
  }
  [[nodiscard]] std::vector<std::string> ids() const {
    std::vector<std::string> result;
    result.reserve(entries_.size());
    for (const auto& entry : entries_) result.emplace_back(entry->id());
    return result;
  }
  [[nodiscard]] auto begin() const { return entries_.begin(); }
  [[nodiscard]] auto end() const { return entries_.end(); }
  [[nodiscard]] std::size_t size() const { return entries_.size(); }

private:
  std::vector<std::unique_ptr<const Entry>> entries_;
};

} // namespace foretrain
