#include "executor/environment.h"

#include <array>
#include <cstdlib>
#include <optional>

namespace foretrain {
namespace {

constexpr int kLastPort = 65535;

Result<int> number_in(const char* name, const char* text, int lowest, int highest) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < lowest || value > highest)
    return fail(name, "'" + std::string(text) + "' is not a number from " + std::to_string(lowest) + " to " +
                          std::to_string(highest));
  return static_cast<int>(value);
}

struct Launcher {
  const char* name;
  const char* rank;
  const char* world;
  const char* here;
};
constexpr std::array<Launcher, 4> kLaunchers = {
    {{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
     {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
     {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
     {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}}};

/// The first launcher whose variables are there.
std::optional<Launcher> launcher_here() {
  for (const Launcher& launcher : kLaunchers)
    if (std::getenv(launcher.rank) && std::getenv(launcher.world)) return launcher;
  return std::nullopt;
}

/// Where rank 0 listens: as told, or for a world of one anywhere.
Result<Rendezvous> meeting_place(int rank, int world) {
  Rendezvous rendezvous;
  rendezvous.host_here = rank == 0;
  if (const char* token = std::getenv(kTokenVariable)) rendezvous.token = token;
  const char* host = std::getenv("MASTER_ADDR");
  const char* port = std::getenv("MASTER_PORT");
  if (world > 1 && !host)
    return fail("MASTER_ADDR", "is not set in the environment", "the name or address of the machine of rank 0");
  if (world > 1 && !port) return fail("MASTER_PORT", "is not set in the environment", "a free port on it");
  if (host) rendezvous.host = host;
  if (port) {
    FORETRAIN_TRY(const int number, number_in("MASTER_PORT", port, 1, kLastPort));
    rendezvous.port = static_cast<std::uint16_t>(number);
  }
  return rendezvous;
}

} // namespace

Result<RankPlace> place_from_environment(int world) {
  const auto launcher = launcher_here();
  if (!launcher)
    return fail("RANK", "is not set in the environment",
                "--launcher env needs RANK and WORLD_SIZE, or those of mpirun, PMI or srun");
  FORETRAIN_TRY(const int said, number_in(launcher->world, std::getenv(launcher->world), 1, 1'000'000));
  if (said != world)
    return fail(launcher->world, std::to_string(said) + " processes for a plan of " + std::to_string(world) + " ranks");
  RankPlace place;
  FORETRAIN_TRY(place.rank, number_in(launcher->rank, std::getenv(launcher->rank), 0, world - 1));
  place.here = place.rank;
  if (const char* here = std::getenv(launcher->here)) {
    FORETRAIN_TRY(place.here, number_in(launcher->here, here, 0, world - 1));
  }
  FORETRAIN_TRY(place.rendezvous, meeting_place(place.rank, world));
  return place;
}

Result<int> restarts_from_environment(int most) {
  constexpr int kMost = 1'000'000;
  const char* told = std::getenv("TORCHELASTIC_MAX_RESTARTS");
  if (told && std::string(told) == "0" && !std::getenv(kRestartVariable))
    return fail("--max-restarts", std::to_string(most) + " here, but torchrun starts ranks again 0 times",
                "torchrun --max-restarts=" + std::to_string(most));
  for (const char* name : {kRestartVariable, "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"}) {
    const char* text = std::getenv(name);
    if (!text) continue;
    FORETRAIN_TRY(const int count, number_in(name, text, 0, kMost));
    if (count > most)
      return fail(name, "restart " + std::to_string(count) + " of " + std::to_string(most) + " (--max-restarts)",
                  "give the run up, or allow more");
    return count;
  }
  return fail("--max-restarts", "nobody here starts lost ranks again",
              "torchrun --max-restarts does (mpirun does not); a script that starts the ranks in a loop sets " +
                  std::string(kRestartVariable) + " to 0, 1, …");
}

Result<RankPlace> place_from_launcher(int rank, const std::string& rendezvous, int world) {
  const std::size_t colon = rendezvous.rfind(':');
  if (rank >= world || colon == std::string::npos)
    return fail("--rank", "is for ranks that the local launcher starts", "leave it out");
  RankPlace place;
  place.rank = place.here = rank;
  place.rendezvous.host = rendezvous.substr(0, colon);
  FORETRAIN_TRY(const int port, number_in("--rendezvous", rendezvous.c_str() + colon + 1, 1, kLastPort));
  place.rendezvous.port = static_cast<std::uint16_t>(port);
  if (const char* token = std::getenv(kTokenVariable)) place.rendezvous.token = token;
  return place;
}

} // namespace foretrain
