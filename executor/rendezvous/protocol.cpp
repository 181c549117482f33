#include "executor/rendezvous/protocol.h"

#include <array>
#include <sstream>

namespace foretrain {

std::string to_text(const Fingerprint& fingerprint) {
  return std::to_string(fingerprint.world) + "\n" + fingerprint.version + "\n" + fingerprint.plan + "\n" +
         fingerprint.settings;
}

std::string difference(const std::string& theirs, const std::string& ours) {
  constexpr std::array<const char*, 4> kWhat = {"world size", "version", "plan", "settings"};
  std::istringstream a(theirs);
  std::istringstream b(ours);
  for (const char* what : kWhat) {
    std::string their_line;
    std::string our_line;
    std::getline(a, their_line);
    std::getline(b, our_line);
    if (their_line != our_line)
      return std::string("another ") + what + " than rank 0: " + their_line + " instead of " + our_line;
  }
  return {};
}

} // namespace foretrain
