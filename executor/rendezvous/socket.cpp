#include "executor/rendezvous/socket.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace foretrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<char, 4> kMagic = {'F', 'T', 'R', '1'}; ///< before every message: another program says others
constexpr std::size_t kHeader = kMagic.size() + 4 + 1 + 1;

void put(std::string& text, std::uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) text.push_back(static_cast<char>(number >> shift & 0xff));
}
std::uint32_t number_at(const std::string& text, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i)
    number |= static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + i])) << (8 * i);
  return number;
}

std::string place(const std::string& host, std::uint16_t port) {
  return host + ":" + std::to_string(port);
}

struct Resolved {
  sockaddr_in address{};
};
Result<Resolved> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (problem != 0)
    return fail_environment(place(host, port), std::string("is no address: ") + gai_strerror(problem),
                            "the name or IPv4 address of the machine of rank 0");
  Resolved resolved;
  std::memcpy(&resolved.address, found->ai_addr, sizeof resolved.address);
  resolved.address.sin_port = htons(port);
  freeaddrinfo(found);
  return resolved;
}

void set_options(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

} // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (number_ >= 0) ::close(number_);
    number_ = other.release();
  }
  return *this;
}
Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}
int Descriptor::release() {
  const int number = number_;
  number_ = -1;
  return number;
}

Result<Descriptor> listen_at(const std::string& host, std::uint16_t port) {
  FORETRAIN_TRY(const Resolved resolved, resolve(host, port));
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* address = reinterpret_cast<const sockaddr*>(&resolved.address);
  if (::bind(socket.get(), address, sizeof resolved.address) != 0 || ::listen(socket.get(), 1024) != 0) {
    const int problem = errno;
    const char* hint = problem == EADDRINUSE      ? "another program listens there: choose another port"
                       : problem == EADDRNOTAVAIL ? "it is not an address of this machine: rank 0 must run there"
                       : problem == EACCES        ? "ports below 1024 are reserved"
                                                  : "";
    return fail_environment(place(host, port), std::string("cannot be listened at: ") + std::strerror(problem), hint);
  }
  return socket;
}

std::uint16_t port_of(const Descriptor& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

std::string own_address(const Descriptor& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  std::array<char, INET_ADDRSTRLEN> text{};
  inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  return text.data();
}

Result<Descriptor> connect_to(const std::string& host, std::uint16_t port, std::chrono::milliseconds timeout) {
  FORETRAIN_TRY(const Resolved resolved, resolve(host, port));
  const Clock::time_point deadline = Clock::now() + timeout;
  std::string reason = "no answer";
  while (Clock::now() < deadline) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int problem = 0;
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&resolved.address), sizeof resolved.address) != 0) {
      problem = errno;
      if (problem == EINPROGRESS) {
        pollfd waiting{socket.get(), POLLOUT, 0};
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
        problem = ETIMEDOUT;
        if (::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left, 1))) > 0) {
          socklen_t size = sizeof problem;
          getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &size);
        }
      }
    }
    if (problem == 0) {
      set_options(socket.get());
      return socket;
    }
    reason = std::strerror(problem);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return fail_environment(place(host, port), "rank 0 cannot be reached: " + reason,
                          "is rank 0 running, and are MASTER_ADDR and MASTER_PORT the same everywhere?");
}

std::string encode(const Message& message) {
  std::string body;
  for (const std::string& field : message.fields) {
    put(body, static_cast<std::uint32_t>(field.size()));
    body += field;
  }
  std::string text(kMagic.data(), kMagic.size());
  put(text, static_cast<std::uint32_t>(body.size()));
  text.push_back(static_cast<char>(message.kind));
  text.push_back(static_cast<char>(message.fields.size()));
  return text + body;
}

Decoded decode(std::string& bytes, std::size_t most, Message& message) {
  const std::size_t start = std::min(bytes.size(), kMagic.size());
  if (bytes.compare(0, start, kMagic.data(), start) != 0) return Decoded::malformed;
  if (bytes.size() < kHeader) return Decoded::incomplete;
  const std::size_t size = number_at(bytes, kMagic.size());
  if (size > most) return Decoded::malformed;
  if (bytes.size() < kHeader + size) return Decoded::incomplete;
  message.kind = static_cast<std::uint8_t>(bytes[kMagic.size() + 4]);
  const auto count = static_cast<std::size_t>(static_cast<unsigned char>(bytes[kMagic.size() + 5]));
  message.fields.clear();
  std::size_t at = kHeader;
  const std::size_t end = kHeader + size;
  for (std::size_t i = 0; i < count; ++i) {
    if (end - at < 4) return Decoded::malformed;
    const std::size_t length = number_at(bytes, at);
    at += 4;
    if (end - at < length) return Decoded::malformed;
    message.fields.push_back(bytes.substr(at, length));
    at += length;
  }
  if (at != end) return Decoded::malformed;
  bytes.erase(0, end);
  return Decoded::message;
}

bool send_message(const Descriptor& socket, const Message& message) {
  const std::string text = encode(message);
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t part = ::send(socket.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (part > 0) {
      sent += static_cast<std::size_t>(part);
      continue;
    }
    if (part < 0 && errno == EINTR) continue;
    if (part < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      pollfd waiting{socket.get(), POLLOUT, 0};
      constexpr int kPatience = 10'000; // a reader that takes nothing for so long is gone
      if (::poll(&waiting, 1, kPatience) > 0) continue;
    }
    return false;
  }
  return true;
}

Heard receive_message(const Descriptor& socket, std::string& rest, std::chrono::milliseconds timeout,
                      Message& message) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (true) {
    const Decoded decoded = decode(rest, kMostMessageBytes, message);
    if (decoded == Decoded::message) return Heard::message;
    if (decoded == Decoded::malformed) return Heard::gone;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Heard::nothing;
    pollfd waiting{socket.get(), POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return Heard::gone;
    if (ready <= 0) continue;
    std::array<char, 65536> buffer{};
    const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got > 0) rest.append(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return Heard::gone;
  }
}

} // namespace foretrain
