#include <algorithm>
#include <array>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/architecture/repository_files.h"

/// Tensors of a rank may be in a device's memory, and the device may be a step behind the host. So no source of the
/// executor follows a tensor's pointer or reads its numbers, but those that say why they may.
namespace foretrain::architecture {
namespace {

/// What touches memory, or waits for the device.
constexpr std::array<const char*, 6> kTouches = {"data_ptr", "accessor<", ".item<", ".item()", ".cpu()", "nonzero"};

struct Allowed {
  std::ptrdiff_t most = 0;
  std::string reason;
};
const std::map<std::string, Allowed>& allowed() {
  static const std::map<std::string, Allowed> table = {
      {"executor/kernels/kernel_set.h", {1, "a loss, read after the step"}},
      {"executor/kernels/tensor_experts.cpp", {1, "sizes of tensors follow from the choice of experts"}},
      {"executor/kernels/tensor_norm.cpp", {1, "fills memory of the host that is copied"}},
      {"executor/checkpoint/saver.cpp", {1, "what ranks agree on, in the host's memory"}},
      {"executor/checkpoint/state.cpp", {2, "between steps, on a copy in the host's memory"}},
      {"executor/communicators/device_communicator.cpp", {3, "pointers that the device follows"}},
      {"executor/communicators/gloo.cpp", {2, "moves the host's memory alone"}},
      {"executor/step_results.cpp", {1, "the gradients' norm, read after the step"}},
      {"executor/step_end.cpp", {2, "where nothing is queued"}},
      {"executor/transfers.cpp", {3, "counts of rows, in the host's memory"}},
  };
  return table;
}

/// Loops over the host's memory; those by operators alone are in files that say so.
bool is_host_kernel(const std::string& path) {
  return path.starts_with("executor/kernels/") && !path.starts_with("executor/kernels/tensor_") &&
         !path.starts_with("executor/kernels/kernel_set");
}

std::ptrdiff_t touches(const std::string& text) {
  std::ptrdiff_t count = 0;
  for (const std::string touch : kTouches)
    for (std::size_t at = text.find(touch); at != std::string::npos; at = text.find(touch, at + 1)) ++count;
  return count;
}

TEST(DeviceMemory, IsTouchedOnlyWhereItIsSaidWhy) {
  for (const RepositoryFile& file : repository_files()) {
    if (!file.path.starts_with("executor/") || !(file.path.ends_with(".cpp") || file.path.ends_with(".h"))) continue;
    if (is_host_kernel(file.path)) continue;
    const auto entry = allowed().find(file.path);
    EXPECT_LE(touches(file.text), entry == allowed().end() ? 0 : entry->second.most) << file.path;
  }
}

TEST(DeviceMemory, EveryReasonIsOfAFileThatNeedsIt) {
  std::map<std::string, std::ptrdiff_t> found;
  for (const RepositoryFile& file : repository_files()) found[file.path] = touches(file.text);
  for (const auto& [path, entry] : allowed()) EXPECT_GT(found[path], 0) << path << ": " << entry.reason;
}

TEST(DeviceMemory, CountsEachTouch) {
  EXPECT_EQ(touches("x.data_ptr<T>()[0] = y.item<double>();"), 2);
  EXPECT_EQ(touches("x.add_(y);"), 0);
}

} // namespace
} // namespace foretrain::architecture
