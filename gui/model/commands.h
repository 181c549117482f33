// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace foretrain::gui {

/// Something the user can do. Menus, toolbar, context menus, palette, key list and tests are made of these.
struct Command {
  std::string id;    ///< "search.start"
  std::string menu;  ///< "Study", "View" …; empty: in the palette alone
  std::string title; ///< "Start the search"
  std::string key;   ///< as Qt writes it: "Ctrl+R"; empty: none
  std::function<void()> run;
  std::function<bool()> enabled = nullptr; ///< null: always
  std::function<bool()> checked = nullptr; ///< null: no tick
  bool asks = false;                       ///< opens a dialog or leaves the program: not for the monkey test
};

class CommandRegistry {
public:
  /// An id that exists is a mistake of ours.
  void add(Command command);
  [[nodiscard]] const std::vector<Command>& all() const { return commands_; }
  [[nodiscard]] const Command* find(std::string_view id) const;
  [[nodiscard]] bool enabled(const Command& command) const { return !command.enabled || command.enabled(); }
  /// False when there is none, or it cannot be run now.
  bool run(std::string_view id) const;
  /// Commands whose title has these letters in this order, the closest first.
  [[nodiscard]] std::vector<const Command*> matching(std::string_view letters) const;

private:
  std::vector<Command> commands_;
};

} // namespace foretrain::gui
