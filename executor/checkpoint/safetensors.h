#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

/// Files of tensors in the safetensors format (https://github.com/huggingface/safetensors, "Format"): eight bytes with
/// the length of a JSON header (little-endian), the header, and the tensors one after another without gaps.
namespace foretrain::safetensors {

/// Longest header that is read, as in the reference implementation.
inline constexpr std::int64_t kMaximumHeader = 100'000'000;

/// Bytes of an element of a type ("F64", "F32", "F16", "BF16", "I64" …); 0: no type of the format.
[[nodiscard]] int width_of(std::string_view type);

struct Entry {
  std::string name;
  std::string type;                ///< as the format spells it
  std::vector<std::int64_t> shape; ///< empty: a single number
  std::int64_t first = 0;          ///< byte at which it begins, counted from the end of the header
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t bytes() const { return elements() * width_of(type); }
};

/// An open file whose header has been checked: every tensor lies inside the file, none overlaps, no byte is left over.
/// May be read by several threads at once.
class File {
public:
  /// Errors: missing, cut off, a header that is not what the format says; `where` is the path.
  [[nodiscard]] static Result<File> open(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; } ///< of the file
  [[nodiscard]] const std::string& header() const { return header_; }
  [[nodiscard]] const std::map<std::string, Entry>& entries() const { return entries_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// `count` elements of a tensor from `first` on, into `count` · width bytes. Error: the file is shorter than it was.
  [[nodiscard]] Result<void> read(const Entry& entry, std::int64_t first, std::int64_t count, void* to) const;

private:
  File() = default;
  [[nodiscard]] Result<void> parse();

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
  std::string header_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a file tensor by tensor; it is there for good once `finish` has returned.
class Writer {
public:
  /// Makes the file and writes its header; `first` of the entries is set here. Error: cannot be written.
  [[nodiscard]] static Result<Writer> create(const std::filesystem::path& path, std::vector<Entry> entries,
                                             const std::map<std::string, std::string>& metadata);
  ~Writer();
  Writer(Writer&& other) noexcept;
  Writer& operator=(Writer&& other) noexcept;

  /// The next bytes, in the order of the entries. Error: the disk is full.
  [[nodiscard]] Result<void> put(const void* data, std::int64_t bytes);
  /// Waits until the disk has it all.
  [[nodiscard]] Result<void> finish();

private:
  Writer() = default;
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t left_ = 0; ///< bytes of tensors that are still to come
};

} // namespace foretrain::safetensors
