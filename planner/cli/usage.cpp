#include "planner/cli/usage.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/text.h"
#include "planner/cli/context.h"

namespace foretrain::cli {
namespace {

/// The dashes, which all flags share, bring none nearer.
std::optional<std::string> nearest_word(const std::string& word, const std::vector<std::string>& words) {
  const std::string dashes = word.starts_with("--") ? "--" : "";
  std::vector<std::string> names;
  for (const std::string& other : words)
    if (other.starts_with("--") == !dashes.empty()) names.push_back(other.substr(dashes.size()));
  const auto close = nearest(word.substr(dashes.size()), names);
  return close ? std::optional(dashes + *close) : std::nullopt;
}

/// The nearest command or flag for what was not understood; where a value is wrong, the flags are right.
std::string hint_about(const CLI::App& app, bool value, int argc, const char* const* argv) {
  std::vector<std::string> words;
  const CLI::App* at = &app;
  int depth = 0; // argument that named `at`
  for (int i = 1; i < argc; ++i)
    for (const CLI::App* command : at->get_subcommands({}))
      if (command->get_name() == argv[i]) {
        at = command;
        depth = i;
        break;
      }
  for (const CLI::App* command : at->get_subcommands({})) words.push_back(command->get_name());
  for (const CLI::Option* option : at->get_options())
    if (!option->get_lnames().empty()) words.push_back("--" + option->get_lnames().front());
  for (int i = 1; i < argc && !value; ++i) {
    const std::string word = argv[i];
    const bool known = std::find(words.begin(), words.end(), word.substr(0, word.find('='))) != words.end();
    const bool candidate = word.starts_with("--") || i == depth + 1;
    if (!candidate || known || word.size() > 64) continue;
    if (const auto close = nearest_word(word, words)) return fmt::format("did you mean '{}'?", *close);
  }
  if (at == &app) return "foretrain --help lists the commands";
  std::string command = at->get_name();
  for (const CLI::App* above = at->get_parent(); above != nullptr && above != &app; above = above->get_parent())
    command = above->get_name() + ' ' + command;
  return fmt::format("foretrain {} --help", command);
}

/// What the library says, where its words are ours.
std::string message_of(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error))
    return fmt::format("'{}' is not expected here", join(app.remaining(true), " "));
  constexpr std::string_view kMost = ": At Most 1 required but received ";
  if (const std::size_t at = message.find(kMost); at != std::string::npos)
    message =
        fmt::format("{}: stands {} times, once is meant", message.substr(0, at), message.substr(at + kMost.size()));
  return message;
}

} // namespace

int usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, const char* const* argv) {
  const bool value =
      dynamic_cast<const CLI::ConversionError*>(&error) || dynamic_cast<const CLI::ValidationError*>(&error);
  return complain({Error::Kind::input, message_of(app, error), "", hint_about(app, value, argc, argv)});
}

} // namespace foretrain::cli
