#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"

namespace foretrain {

/// A file of nothing but tokens, each 2 or 4 bytes, unsigned, little-endian; mapped into memory. Sequence i of a run is
/// the file's tokens from (i mod n) · length on, and one more as the last one's target; n sequences fit. Which rank
/// reads which sequence is the layout's business: the global batch of a step is the same in every layout.
class TokenFile {
public:
  /// `bytes`: of a token, 2 or 4. Errors: missing, not a whole number of tokens, too short for one sequence.
  [[nodiscard]] static Result<TokenFile> open(const std::filesystem::path& path, int bytes, std::int64_t length);
  ~TokenFile();
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&& other) noexcept;

  [[nodiscard]] std::int64_t sequences() const { return (tokens_ - 1) / length_; }
  /// length + 1 tokens. Error: one is not below `vocab`; named with its place in the file.
  [[nodiscard]] Result<std::vector<std::int64_t>> sequence(std::int64_t number, std::int64_t vocab) const;
  /// {"tokens": …, "bytes": …}: what a run must find again to go on.
  [[nodiscard]] Json describe() const;

private:
  TokenFile() = default;
  std::filesystem::path path_;
  const unsigned char* data_ = nullptr;
  std::int64_t tokens_ = 0;
  int bytes_ = 2;
  std::int64_t length_ = 1;
};

} // namespace foretrain
