#include "executor/communicators/device_library.h"
#include "tests/support/places.h"

#include <fstream>

#include <gtest/gtest.h>

/// What can be said of the libraries of devices without one.
namespace foretrain {
namespace {

namespace fs = std::filesystem;

const fs::path kPrograms = test::build_folder() / "bin";

bool built(Backend backend) {
  return fs::exists(kPrograms / ("foretrain-" + std::string(id_of(backend)) + ".so"));
}

TEST(DeviceLibraries, BackendsHaveNames) {
  for (const Backend backend : {Backend::gloo, Backend::nccl, Backend::rccl})
    EXPECT_EQ(backend_of(id_of(backend)), backend);
  EXPECT_FALSE(backend_of("mpi"));
}

TEST(DeviceLibraries, OneThatIsNotBuiltSaysWhy) {
  const auto loaded = load_device_library(Backend::nccl, "/nowhere/bin");
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message.find("foretrain-nccl.so is not beside the program"), std::string::npos);
  EXPECT_EQ(loaded.error().where, "--backend nccl");
}

TEST(DeviceLibraries, OneThatIsNoLibraryIsNamed) {
  std::string folder = (fs::temp_directory_path() / "foretrain-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(fs::path(folder) / "foretrain-rccl.so") << "no library";
  const auto loaded = load_device_library(Backend::rccl, folder);
  fs::remove_all(folder);
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.error().message.find("foretrain-rccl.so"), std::string::npos) << loaded.error().message;
}

/// It resolves every symbol when it is loaded: it is linked.
TEST(DeviceLibraries, NcclLoadsWithoutAGpuAndSaysWhatIsMissing) {
  if (!built(Backend::nccl)) GTEST_SKIP() << "this build has no NCCL";
  const auto loaded = load_device_library(Backend::nccl, kPrograms);
  ASSERT_TRUE(loaded) << to_string(loaded.error());
  const auto devices = devices_of(Backend::nccl, kPrograms);
  if (devices) GTEST_SKIP() << "there are " << *devices << " GPUs";
  // With a LibTorch that computes on the processor alone a GPU would be of no use: that is said first.
  const std::string& said = devices.error().message;
  const std::string missing = "there is no GPU that can be used: ";
  if (said.find("it was built with a LibTorch without CUDA (") == std::string::npos) {
    EXPECT_NE(said.find(missing), std::string::npos) << said;
    EXPECT_GT(said.size(), missing.size());
  }
  EXPECT_THROW((void)(*loaded)->open({}), std::runtime_error);
}

} // namespace
} // namespace foretrain
