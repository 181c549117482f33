#include <sstream>

#include "core/base/digest.h"
#include "core/spec/io.h"
#include "executor/run.h"
#include FORETRAIN_TORCH_VERSION_FILE

namespace foretrain {
namespace {

/// Of the sources, and of the LibTorch that ranks are compiled with.
constexpr const char* kVersion = "foretrain " FORETRAIN_VERSION ", LibTorch " TORCH_VERSION;

} // namespace

Fingerprint fingerprint_of(const Runnable& runnable, const RunSettings& settings) {
  std::ostringstream text;
  text.precision(17);
  text << settings.steps << " steps, seed " << settings.seed << ", learning rate " << settings.learning_rate
       << ", clip norm " << settings.clip_norm << ", tokens " << settings.data.dump() << ", "
       << id_of(settings.backend);
  if (settings.first_step > 0) text << ", from step " << settings.first_step;
  if (!settings.weights.empty()) text << ", weights given";
  if (!settings.checkpoint.folder.empty())
    text << ", checkpoints every " << settings.checkpoint.every << (settings.checkpoint.background ? " behind" : "");
  return {kVersion, digest(to_json(runnable.plan).dump()), text.str(), runnable.program.mesh.world()};
}

} // namespace foretrain
