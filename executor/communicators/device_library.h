#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "executor/communicators/device_link.h"

namespace foretrain {

/// What carries the transfers of a run.
enum class Backend {
  gloo, ///< between processes, in the host's memory; everywhere
  nccl, ///< between NVIDIA GPUs, which compute
  rccl, ///< between AMD GPUs
};
[[nodiscard]] std::string_view id_of(Backend backend);
[[nodiscard]] std::optional<Backend> backend_of(std::string_view id);

/// Loads the library of a backend of devices, from the folder of the program or from the installation that it is in.
/// Errors: this build has none (with the reason), it needs a library that is not here, it is of another version.
[[nodiscard]] Result<const DeviceLibrary*> load_device_library(Backend backend,
                                                               const std::filesystem::path& program_folder);

/// The same, with a LibTorch that computes on its devices and at least one that can be used; their number. Error: what
/// is missing.
[[nodiscard]] Result<int> devices_of(Backend backend, const std::filesystem::path& program_folder);

/// The folder of the running program.
[[nodiscard]] std::filesystem::path own_folder();

} // namespace foretrain
