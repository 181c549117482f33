#pragma once

#include <cstdint>
#include <string>

namespace foretrain {

/// Kinds of messages between a rank and the rendezvous. A rank keeps two connections: one asks for values, one watches.
enum class Say : std::uint8_t {
  // From a rank
  hello = 1, ///< token, "values" or "watch", rank, fingerprint
  set,       ///< key, value → done
  get,       ///< key → value, once somebody has set it
  add,       ///< key, number → value: the new sum, as text
  check,     ///< keys → value: "1" when all are there
  remove,    ///< key → value: "1" when it was there
  alive,     ///< watch: every now and then → done
  failed,    ///< watch: what it gave up at
  leave,     ///< watch: it is done; that its connection ends is no failure
  // To a rank
  welcome = 64,
  refused, ///< why
  done,
  value, ///< bytes
  abort, ///< watch: who failed, and how; values: nothing more will come
};

/// What all ranks of a run must have in common, field by field.
struct Fingerprint {
  std::string version;  ///< of foretrain and of LibTorch
  std::string plan;     ///< digest
  std::string settings; ///< steps, seed, learning rate: what changes the numbers
  int world = 0;
};
[[nodiscard]] std::string to_text(const Fingerprint& fingerprint);
/// "": equal; else what differs, for people.
[[nodiscard]] std::string difference(const std::string& theirs, const std::string& ours);

} // namespace foretrain
