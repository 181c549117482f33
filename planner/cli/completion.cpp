#include "planner/cli/completion.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace foretrain::cli {
namespace {

/// Commands of a command, then its long options.
std::string words_of(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command : app.get_subcommands({})) words += command->get_name() + " ";
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
  if (!words.empty()) words.pop_back();
  return words;
}

} // namespace

Result<std::string> completion_script(const CLI::App& app, const std::string& shell) {
  if (shell != "bash" && shell != "zsh")
    return fail("completion", fmt::format("no completion for '{}'", shell), "bash or zsh");
  // bash's own functions; zsh runs them through bashcompinit.
  std::string script = shell == "zsh" ? "#compdef foretrain\nautoload -U +X bashcompinit && bashcompinit\n" : "";
  script += "_foretrain() {\n  local words\n  case \"${COMP_WORDS[1]}\" in\n";
  for (const CLI::App* command : app.get_subcommands({}))
    script += fmt::format("  {}) words=\"{}\" ;;\n", command->get_name(), words_of(*command));
  script += fmt::format("  *) words=\"{}\" ;;\n  esac\n", words_of(app));
  script += "  if [ \"$COMP_CWORD\" -eq 1 ]; then words=\"" + words_of(app) + "\"; fi\n";
  script += "  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n"
            "complete -o default -F _foretrain foretrain\n";
  return script;
}

} // namespace foretrain::cli
