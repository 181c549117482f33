#pragma once

#include <optional>
#include <string>

namespace foretrain {

/// Whose kernels OpenBLAS took ("Prescott", "SkylakeX"); empty where the process has no OpenBLAS.
[[nodiscard]] std::string blas_core();

/// Kernels that this processor has the instructions for, where OpenBLAS took some for processors of before 2008: an
/// OpenBLAS that is older than the processor does so, and its products then take up to ten times as long. Nothing where
/// it took others.
[[nodiscard]] std::optional<std::string> better_blas_core(const std::string& taken);

/// Starts the program anew with `OPENBLAS_CORETYPE` where `better_blas_core` knows better, unless the variable is set:
/// OpenBLAS chooses once, when it is loaded.
void choose_blas_core(char** words);

} // namespace foretrain
