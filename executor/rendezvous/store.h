#pragma once

#include <memory>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "executor/rendezvous/client.h"

namespace foretrain {

/// The rendezvous as LibTorch's collective library asks for it.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> make_store(std::unique_ptr<RendezvousClient> client,
                                                         std::chrono::milliseconds timeout);

} // namespace foretrain
