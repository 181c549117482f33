#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace foretrain {

/// A file descriptor that is closed at the end.
class Descriptor {
public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  [[nodiscard]] int get() const { return number_; }
  [[nodiscard]] explicit operator bool() const { return number_ >= 0; }
  int release();

private:
  int number_ = -1;
};

/// Listens on this address alone ("0.0.0.0": on all). Port 0: one that is free.
/// Errors: not an address of this machine, a port in use or reserved.
[[nodiscard]] Result<Descriptor> listen_at(const std::string& host, std::uint16_t port);
[[nodiscard]] std::uint16_t port_of(const Descriptor& socket);
/// This machine's address on the way to the other end.
[[nodiscard]] std::string own_address(const Descriptor& socket);

/// Tries again until the time is up, since the other side may not listen yet.
/// Errors: no such host, nobody listens.
[[nodiscard]] Result<Descriptor> connect_to(const std::string& host, std::uint16_t port,
                                            std::chrono::milliseconds timeout);

/// A message: a kind and texts (which may hold any bytes).
struct Message {
  std::uint8_t kind = 0;
  std::vector<std::string> fields;
};

inline constexpr std::size_t kMostMessageBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMostGreetingBytes = std::size_t{64} << 10; ///< of a peer that has not shown its token

[[nodiscard]] std::string encode(const Message& message);

enum class Decoded { message, incomplete, malformed };
/// Takes the first whole message off `bytes`.
[[nodiscard]] Decoded decode(std::string& bytes, std::size_t most, Message& message);

/// Sends all of it; false when the other end is gone.
[[nodiscard]] bool send_message(const Descriptor& socket, const Message& message);
enum class Heard { message, nothing, gone };
/// Waits for one message; `rest` keeps what came after it. Gone: the other end, or it says nonsense.
[[nodiscard]] Heard receive_message(const Descriptor& socket, std::string& rest, std::chrono::milliseconds timeout,
                                    Message& message);

} // namespace foretrain
