#include "executor/arguments.h"
#include "executor/blas_core.h"
#include "executor/environment.h"
#include "executor/run.h"

/// foretrain-rank: one rank of a plan. foretrain-run becomes it, or starts one for each rank; it alone has LibTorch.
namespace foretrain {
namespace {

int run(Arguments& a) {
  if (auto settled = settle_options(a); !settled) return report(settled.error());
  Prepared prepared = prepare_plan(a);
  if (!prepared.runnable) return prepared.code;
  const Runnable& runnable = *prepared.runnable;
  const int world = runnable.program.mesh.world();
  const auto place = a.rank < 0 ? place_from_environment(world) : place_from_launcher(a.rank, a.rendezvous, world);
  if (!place) return report(place.error());
  if (a.rank < 0 && a.max_restarts > 0) {
    const auto restarts = restarts_from_environment(a.max_restarts);
    if (!restarts) return report(restarts.error());
    if (*restarts > 0) prepare_restart(a.settings);
    a.settings.restarts = *restarts;
  }
  if (auto ready = prepare_run(runnable.plan, a.settings); !ready) return report(ready.error());
  if (a.settings.backend != Backend::gloo)
    if (const auto devices = devices_of(a.settings.backend, own_folder()); !devices) return report(devices.error());
  a.settings.index_here = place->here;
  const auto done = run_rank(runnable, place->rank, place->rendezvous, a.settings);
  return done ? kDone : done.error().kind == Error::Kind::cancelled ? kCancelled : kWrongInput;
}

} // namespace
} // namespace foretrain

int main(int count, char** words) {
  foretrain::choose_blas_core(words);
  return foretrain::run_program(count, words, &foretrain::run);
}
