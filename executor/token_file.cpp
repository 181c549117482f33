#include "executor/token_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/check.h"

namespace foretrain {

Result<TokenFile> TokenFile::open(const std::filesystem::path& path, int bytes, std::int64_t length) {
  FORETRAIN_CHECK((bytes == 2 || bytes == 4) && length > 0, "tokens have 2 or 4 bytes, sequences at least one token");
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return fail(path.string(), std::string("cannot be opened: ") + std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const std::int64_t size = regular ? status.st_size : 0;
  const auto refuse = [&](const std::string& what, const std::string& hint = "") {
    ::close(descriptor);
    return fail(path.string(), what, hint);
  };
  if (!regular) return refuse("is no file");
  if (size % bytes != 0)
    return refuse("has " + std::to_string(size) + " bytes, no whole number of tokens of " + std::to_string(bytes) +
                      " bytes",
                  "--token-type");
  TokenFile file;
  file.path_ = path;
  file.bytes_ = bytes;
  file.length_ = length;
  file.tokens_ = size / bytes;
  if (file.tokens_ < length + 1)
    return refuse("has " + std::to_string(file.tokens_) + " tokens; a sequence takes " + std::to_string(length + 1));
  void* mapped = ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return refuse(std::string("cannot be mapped: ") + std::strerror(errno));
  ::close(descriptor);
  file.data_ = static_cast<const unsigned char*>(mapped);
  return file;
}

TokenFile::~TokenFile() {
  if (data_)
    ::munmap(const_cast<unsigned char*>(data_), static_cast<std::size_t>(tokens_ * bytes_)); // mapped by us, read-only
}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), tokens_(other.tokens_),
      bytes_(other.bytes_), length_(other.length_) {}

TokenFile& TokenFile::operator=(TokenFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(tokens_, other.tokens_);
  std::swap(bytes_, other.bytes_);
  std::swap(length_, other.length_);
  return *this;
}

Result<std::vector<std::int64_t>> TokenFile::sequence(std::int64_t number, std::int64_t vocab) const {
  const std::int64_t first = number % sequences() * length_;
  std::vector<std::int64_t> tokens;
  tokens.reserve(static_cast<std::size_t>(length_) + 1);
  for (std::int64_t i = first; i <= first + length_; ++i) {
    std::int64_t token = 0;
    for (int byte = bytes_; byte-- > 0;) token = token << 8 | data_[i * bytes_ + byte];
    if (token >= vocab)
      return fail(path_.string(),
                  "has token " + std::to_string(token) + " at place " + std::to_string(i) + "; the vocabulary has " +
                      std::to_string(vocab),
                  "another tokenizer's file, or the wrong --token-type");
    tokens.push_back(token);
  }
  return tokens;
}

Json TokenFile::describe() const {
  return {{"tokens", tokens_}, {"bytes", bytes_}};
}

} // namespace foretrain
