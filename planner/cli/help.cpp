#include "planner/cli/help.h"

#include <vector>

#include "core/base/check.h"

namespace foretrain::cli {
namespace {

const std::vector<CommandHelp>& all() {
  static const std::vector<CommandHelp> list = {
      {"", "",
       "Start here:\n"
       "  foretrain plan --model llama3-70b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 256\n"
       "Exit codes: 0 done, 1 the input is wrong, 2 nothing fits, 3 internal error, 130 interrupted (results are "
       "kept)."},
      {"plan", "rank every legal layout of a job",
       "Examples:\n"
       "  foretrain plan --model llama3-70b --cluster dgx-h100 --gpus 64 --seq-len 8192 --global-batch 256\n"
       "  foretrain plan --model ./config.json --cluster dgx-a100-80gb --gpus 16 --seq-len 4096 --global-batch 128 \\\n"
       "      --where 'pp <= 2 and memory_gib < 70 GiB' --objective memory-headroom\n"
       "  foretrain plan study.json --db studies.db --json > report.json\n"
       "A ranked plan saved to a file is what predict, explain and program take:\n"
       "  foretrain plan study.json --json | jq '.ranked[0].plan' > plan.json\n"
       "Ctrl-C ends the search early: what was found is printed and kept."},
      {"predict", "memory and step time of one plan",
       "Examples:\n"
       "  foretrain predict plan.json\n"
       "  foretrain predict plan.json --engine simgrid --trace timeline.json   (open it in Perfetto)\n"
       "Exit code 0 when it fits, 2 when it does not or cannot run."},
      {"explain", "why a plan is slower or faster than another",
       "Examples:\n"
       "  foretrain explain plan.json                       (against the best of a search)\n"
       "  foretrain explain plan.json --against other.json"},
      {"program", "what every rank does in a step, op by op",
       "Example:\n"
       "  foretrain program plan.json --role 0 | less\n"
       "The last lines say whether transfers pair, collectives agree in order, buffers are freed and nothing "
       "deadlocks."},
      {"validate", "predictions against published runs",
       "Examples:\n"
       "  foretrain validate data/measured/*.csv\n"
       "  foretrain validate rows.csv --json | jq .summary.overall\n"
       "Rows that do not say enough are skipped, with the reason."},
      {"run", "execute a plan for real and keep what was measured beside what was predicted",
       "Examples:\n"
       "  foretrain run plan.json --launcher local --steps 20\n"
       "  foretrain run plan.json --steps 20 --db runs.db --json | jq .step_time_s\n"
       "  foretrain run plan.json --steps 500 --checkpoint ckpt --checkpoint-every 50 --max-restarts 3\n"
       "  foretrain run other.json --steps 900 --resume ckpt   (another layout goes on)\n"
       "The plan is lowered under the semantics of the executor. Its files (plan.json, run.json, a log per rank) are "
       "in "
       "a folder beside the database. Ctrl-C ends all ranks; the steps done are kept."},
      {"compare", "a run's prediction beside its measurements",
       "Examples:\n"
       "  foretrain compare 3 --ops\n"
       "  foretrain compare 3 --trace both.json   (open it in Perfetto)"},
      {"detect", "the cluster that this machine is",
       "Examples:\n"
       "  foretrain detect --out here.json\n"
       "  foretrain detect --ranks 4 > shared.json   (four ranks on however many cores)\n"
       "Peak rates are estimates from the processor's clock and vector width: foretrain calibrate measures."},
      {"calibrate", "measure this machine, so that later predictions rest on it",
       "Examples:\n"
       "  foretrain calibrate                        (the device of preset cpu-host)\n"
       "  foretrain calibrate --cluster here.json --out here-calibration.json\n"
       "  foretrain predict plan.json --calibration here-calibration.json\n"
       "Probes are small plans that the executor runs with all ranks busy; one that is done is not done again."},
      {"presets", "the models, devices, clusters and semantics that have names",
       "Examples:\n"
       "  foretrain presets models\n"
       "  foretrain presets models ./config.json                  (what is read from a Hugging Face configuration)\n"
       "  foretrain presets clusters dgx-h100 > my-cluster.json   (then edit it)"},
      {"schema", "the JSON Schema of a file",
       "Example:\n"
       "  foretrain schema plan > plan.schema.json"},
      {"db", "studies that were kept with --db",
       "Examples:\n"
       "  foretrain db list studies.db\n"
       "  foretrain db best studies.db 3 --objective memory-headroom"},
      {"completion", "completion of commands and options for a shell",
       "Examples:\n"
       "  source <(foretrain completion bash)\n"
       "  foretrain completion zsh > ~/.zfunc/_foretrain"},
  };
  return list;
}

} // namespace

const CommandHelp& help_of(std::string_view command) {
  for (const CommandHelp& help : all())
    if (help.name == command) return help;
  FORETRAIN_CHECK(false, "every command has a help text");
}

} // namespace foretrain::cli
