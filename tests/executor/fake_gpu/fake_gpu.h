#pragma once

#include <functional>

#include <nccl.h>

/// What tests do with devices that are threads.
namespace foretrain::fake_gpu {

/// Work on a stream: a kernel.
void launch(cudaStream_t stream, std::function<void()> kernel);
/// From now on the library says that a peer of this communicator failed, on all of its members.
void break_communicators();
void mend_communicators();
/// Events that exist.
[[nodiscard]] int live_events();

} // namespace foretrain::fake_gpu
