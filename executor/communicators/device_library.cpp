#include "executor/communicators/device_library.h"

#include <array>
#include <utility>

#include <dlfcn.h>

namespace foretrain {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::pair<Backend, std::string_view>, 3> kNames = {
    {{Backend::gloo, "gloo"}, {Backend::nccl, "nccl"}, {Backend::rccl, "rccl"}}};

std::string file_of(Backend backend) {
  return "foretrain-" + std::string(id_of(backend)) + ".so";
}

std::string flag_of(Backend backend) {
  return "--backend " + std::string(id_of(backend));
}

const char* why_not_built(Backend backend) {
  return backend == Backend::rccl ? FORETRAIN_RCCL_REASON : FORETRAIN_NCCL_REASON;
}

/// Why kernels do not run on the backend's devices; empty: they do.
std::string why_not_computed(Backend backend) {
  if (backend == Backend::rccl) return "kernels run on GPUs through LibTorch's CUDA; its ROCm is not supported";
  if (FORETRAIN_TORCH_CUDA) return {};
  return "it was built with a LibTorch without CUDA (" FORETRAIN_TORCH_VERSION
         "), which computes on the processor alone";
}

std::optional<fs::path> find_library(Backend backend, const fs::path& folder) {
  std::error_code ignored;
  for (const fs::path& place : {folder, folder.parent_path() / FORETRAIN_LIBRARY_FOLDER / "foretrain"})
    if (fs::exists(place / file_of(backend), ignored)) return place / file_of(backend);
  return std::nullopt;
}

} // namespace

std::string_view id_of(Backend backend) {
  for (const auto& [kind, name] : kNames)
    if (kind == backend) return name;
  return "";
}

std::optional<Backend> backend_of(std::string_view id) {
  for (const auto& [kind, name] : kNames)
    if (name == id) return kind;
  return std::nullopt;
}

Result<const DeviceLibrary*> load_device_library(Backend backend, const fs::path& program_folder) {
  const auto file = find_library(backend, program_folder);
  if (!file)
    return fail_environment(
        flag_of(backend), file_of(backend) + " is not beside the program; when it was built: " + why_not_built(backend),
        "--backend gloo runs everywhere");
  void* library = dlopen(file->c_str(), RTLD_NOW | RTLD_LOCAL); // for good: its threads outlive any one use
  if (!library) return fail_environment(flag_of(backend), dlerror(), "put what it needs on LD_LIBRARY_PATH");
  const auto entry = reinterpret_cast<DeviceEntry>(dlsym(library, kDeviceEntry));
  const DeviceLibrary* found = entry ? entry() : nullptr;
  if (!found || std::string_view(found->interface) != kDeviceInterface)
    return fail_environment(flag_of(backend), file->string() + " is of another version", "install both together");
  return found;
}

Result<int> devices_of(Backend backend, const fs::path& program_folder) {
  FORETRAIN_TRY(const DeviceLibrary* library, load_device_library(backend, program_folder));
  if (const std::string why = why_not_computed(backend); !why.empty())
    return fail_environment(flag_of(backend), why,
                            "build it with the torch wheel's LibTorch (-DTorch_DIR=…), or use "
                            "--backend gloo, which runs everywhere");
  std::string why;
  const int count = library->devices(why);
  if (count > 0) return count;
  return fail_environment(flag_of(backend), "there is no GPU that can be used: " + why,
                          "it needs one with its driver; --backend gloo runs everywhere");
}

fs::path own_folder() {
  return fs::read_symlink("/proc/self/exe").parent_path();
}

} // namespace foretrain
