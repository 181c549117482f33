#include "executor/blas_core.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include <dlfcn.h>
#include <unistd.h>

namespace foretrain {
namespace {

constexpr const char* kVariable = "OPENBLAS_CORETYPE";

} // namespace

std::string blas_core() {
  using Name = char* (*)();
  const auto name = reinterpret_cast<Name>(::dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return name ? name() : "";
}

std::optional<std::string> better_blas_core(const std::string& taken) {
  // What OpenBLAS falls back to when it does not know a processor (driver/others/dynamic.c).
  constexpr std::array<std::string_view, 6> kOld = {"Katmai", "Coppermine", "Northwood", "Prescott", "Banias", "Core2"};
  if (std::find(kOld.begin(), kOld.end(), taken) == kOld.end()) return std::nullopt;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    return "SKYLAKEX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "HASWELL";
#endif
  return std::nullopt;
}

void choose_blas_core(char** words) {
  if (std::getenv(kVariable)) return;
  const auto better = better_blas_core(blas_core());
  if (!better || ::setenv(kVariable, better->c_str(), 1) != 0) return;
  (void)::execv("/proc/self/exe", words); // when it fails, this one goes on, only slower
}

} // namespace foretrain
