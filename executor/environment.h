#pragma once

#include <string>

#include "core/base/result.h"
#include "executor/run.h"

namespace foretrain {

inline constexpr const char* kTokenVariable = "FORETRAIN_TOKEN";
inline constexpr const char* kRestartVariable = "FORETRAIN_RESTART";

/// Which rank this process is, and where it meets the others.
struct RankPlace {
  int rank = 0;
  int here = 0; ///< among the ranks of this machine
  Rendezvous rendezvous;
};

/// From the variables that cluster launchers set; of each row the first that is there: torchrun (RANK, WORLD_SIZE),
/// Open MPI (OMPI_COMM_WORLD_*), PMI (PMI_RANK, PMI_SIZE), srun (SLURM_PROCID, SLURM_NTASKS). Its number on this
/// machine is LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID; the rank where none is there.
/// MASTER_ADDR and MASTER_PORT say where rank 0 listens; FORETRAIN_TOKEN what a rank must show.
/// Errors: a variable is missing, is no number, or the world is another than the plan's.
[[nodiscard]] Result<RankPlace> place_from_environment(int world);

/// How often the ranks were started again before, as whoever starts them says: FORETRAIN_RESTART (a batch script),
/// TORCHELASTIC_RESTART_COUNT (torchrun), SLURM_RESTART_COUNT (a job that was queued again); the first that is there.
/// Errors: none is, so that nobody would start them again (mpirun never does); torchrun was not told to; more than
/// `most`.
[[nodiscard]] Result<int> restarts_from_environment(int most);

/// From the arguments that the local launcher gives: a rank, and "host:port" where it listens.
[[nodiscard]] Result<RankPlace> place_from_launcher(int rank, const std::string& rendezvous, int world);

} // namespace foretrain
