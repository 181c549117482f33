// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/commands.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "core/base/check.h"

namespace foretrain::gui {
namespace {

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

/// How far the letters are spread in the text, from its start; nothing when they are not all there.
std::optional<std::size_t> spread(std::string_view text, std::string_view letters) {
  std::size_t at = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    while (at < text.size() && lower(text[at]) != lower(letters[i])) ++at;
    if (at == text.size()) return std::nullopt;
    if (i == 0) first = at;
    ++at;
  }
  return (at - first) * 100 + first;
}

} // namespace

void CommandRegistry::add(Command command) {
  FORETRAIN_CHECK(find(command.id) == nullptr, "every command has an id of its own");
  commands_.push_back(std::move(command));
}

const Command* CommandRegistry::find(std::string_view id) const {
  const auto found = std::find_if(commands_.begin(), commands_.end(), [id](const Command& c) { return c.id == id; });
  return found == commands_.end() ? nullptr : &*found;
}

bool CommandRegistry::run(std::string_view id) const {
  const Command* command = find(id);
  if (!command || !enabled(*command)) return false;
  command->run();
  return true;
}

std::vector<const Command*> CommandRegistry::matching(std::string_view letters) const {
  std::vector<std::pair<std::size_t, const Command*>> found;
  for (const Command& command : commands_)
    if (const auto distance = spread(command.title, letters)) found.emplace_back(*distance, &command);
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<const Command*> list;
  for (const auto& [distance, command] : found) list.push_back(command);
  return list;
}

} // namespace foretrain::gui
