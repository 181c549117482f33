#include "executor/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/check.h"
#include "core/base/json.h"

namespace foretrain::safetensors {
namespace {

constexpr std::int64_t kPrefix = 8;    ///< bytes of the header's length
constexpr std::int64_t kAlignment = 8; ///< of the first tensor; the header is padded with spaces
constexpr const char* kMetadata = "__metadata__";
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;

struct Width {
  std::string_view type;
  int bytes;
};
constexpr std::array<Width, 15> kWidths = {{{"F64", 8},
                                            {"F32", 4},
                                            {"F16", 2},
                                            {"BF16", 2},
                                            {"I64", 8},
                                            {"I32", 4},
                                            {"I16", 2},
                                            {"I8", 1},
                                            {"U64", 8},
                                            {"U32", 4},
                                            {"U16", 2},
                                            {"U8", 1},
                                            {"BOOL", 1},
                                            {"F8_E4M3", 1},
                                            {"F8_E5M2", 1}}};

Result<void> read_at(int descriptor, const std::filesystem::path& path, std::int64_t first, std::int64_t bytes,
                     char* to) {
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor, to, static_cast<std::size_t>(bytes), first);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_environment(path.string(), std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0) return fail_environment(path.string(), "is cut off at byte " + std::to_string(first));
    to += got;
    first += got;
    bytes -= got;
  }
  return {};
}

/// A count of the header: a whole number that is not negative.
std::int64_t count_of(const Json& value) {
  if (!value.is_number_integer()) return -1;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(kMost)) return -1;
  const auto number = value.get<std::int64_t>();
  return number > kMost ? -1 : number;
}

/// "": all well; else what is wrong with a tensor of the header.
std::string read_entry(const Json& json, Entry& entry, std::int64_t& end) {
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") || !json.contains("data_offsets"))
    return "lacks dtype, shape or data_offsets";
  if (!json["dtype"].is_string() || width_of(json["dtype"].get<std::string>()) == 0)
    return "has the unknown dtype " + json["dtype"].dump();
  entry.type = json["dtype"].get<std::string>();
  const Json& shape = json["shape"];
  if (!shape.is_array()) return "has a shape that is no list";
  std::int64_t elements = 1;
  for (const Json& extent : shape) {
    const std::int64_t count = count_of(extent);
    if (count < 0 || (count > 0 && elements > kMost / count)) return "has the impossible shape " + shape.dump();
    elements *= count;
    entry.shape.push_back(count);
  }
  const Json& offsets = json["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) return "has data_offsets that are not two numbers";
  entry.first = count_of(offsets[0]);
  end = count_of(offsets[1]);
  if (entry.first < 0 || end < entry.first) return "has the impossible data_offsets " + offsets.dump();
  if (end - entry.first != entry.bytes())
    return "has " + std::to_string(end - entry.first) + " bytes, but its shape and dtype need " +
           std::to_string(entry.bytes());
  return "";
}

} // namespace

int width_of(std::string_view type) {
  const auto* const found =
      std::find_if(kWidths.begin(), kWidths.end(), [type](const Width& width) { return width.type == type; });
  return found == kWidths.end() ? 0 : found->bytes;
}

std::int64_t Entry::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_),
      header_(std::move(other.header_)), entries_(std::move(other.entries_)), metadata_(std::move(other.metadata_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(header_, other.header_);
  std::swap(entries_, other.entries_);
  std::swap(metadata_, other.metadata_);
  return *this;
}

Result<File> File::open(const std::filesystem::path& path) {
  File file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.descriptor_ < 0)
    return fail_environment(path.string(), std::string("cannot be opened: ") + std::strerror(errno));
  struct stat status {};
  if (::fstat(file.descriptor_, &status) != 0 || !S_ISREG(status.st_mode))
    return fail_environment(path.string(), "is no file");
  file.bytes_ = status.st_size;
  if (file.bytes_ < kPrefix) return fail_environment(path.string(), "is cut off: it has no header");
  std::array<unsigned char, kPrefix> prefix{};
  if (auto read = read_at(file.descriptor_, path, 0, kPrefix, reinterpret_cast<char*>(prefix.data())); !read)
    return tl::unexpected<Error>(read.error());
  std::uint64_t length = 0;
  for (std::size_t i = prefix.size(); i-- > 0;) length = length << 8U | prefix[i];
  if (length > static_cast<std::uint64_t>(kMaximumHeader))
    return fail_environment(path.string(),
                            "is no safetensors file: its header would have " + std::to_string(length) + " bytes");
  const auto header = static_cast<std::int64_t>(length);
  if (kPrefix + header > file.bytes_) return fail_environment(path.string(), "is cut off inside its header");
  file.header_.resize(static_cast<std::size_t>(header));
  if (auto read = read_at(file.descriptor_, path, kPrefix, header, file.header_.data()); !read)
    return tl::unexpected<Error>(read.error());
  if (auto parsed = file.parse(); !parsed) return tl::unexpected<Error>(parsed.error());
  return file;
}

Result<void> File::parse() {
  const auto broken = [&](const std::string& what) {
    return fail_environment(path_.string(), "has a broken header: " + what);
  };
  if (header_.empty() || header_.front() != '{') return broken("it is no JSON object");
  const auto json = parse_json(header_, path_.string());
  if (!json) return broken(json.error().message);
  if (!json->is_object()) return broken("it is no JSON object");
  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  for (const auto& [name, value] : json->items()) {
    if (name == kMetadata) {
      if (!value.is_object()) return broken("__metadata__ is no object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) return broken("__metadata__/" + key + " is no text");
        metadata_[key] = text.get<std::string>();
      }
      continue;
    }
    Entry entry;
    entry.name = name;
    std::int64_t end = 0;
    if (const std::string problem = read_entry(value, entry, end); !problem.empty())
      return broken("tensor '" + name + "' " + problem);
    spans.emplace_back(entry.first, end);
    entries_.emplace(name, std::move(entry));
  }
  std::sort(spans.begin(), spans.end());
  std::int64_t end = 0;
  for (const auto& [first, last] : spans) {
    if (first != end) return broken("its tensors overlap or leave gaps at byte " + std::to_string(end));
    end = last;
  }
  const std::int64_t there = bytes_ - kPrefix - static_cast<std::int64_t>(header_.size());
  if (end > there)
    return fail_environment(path_.string(), "is cut off: " + std::to_string(end - there) + " bytes of " +
                                                std::to_string(end) + " are missing");
  if (end < there) return broken(std::to_string(there - end) + " bytes belong to no tensor");
  return {};
}

Result<void> File::read(const Entry& entry, std::int64_t first, std::int64_t count, void* to) const {
  FORETRAIN_CHECK(first >= 0 && count >= 0 && first + count <= entry.elements(), "a read lies inside its tensor");
  const std::int64_t width = width_of(entry.type);
  const std::int64_t begin = kPrefix + static_cast<std::int64_t>(header_.size()) + entry.first + first * width;
  return read_at(descriptor_, path_, begin, count * width, static_cast<char*>(to));
}

Writer::~Writer() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Writer::Writer(Writer&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), left_(other.left_) {}

Writer& Writer::operator=(Writer&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(left_, other.left_);
  return *this;
}

Result<Writer> Writer::create(const std::filesystem::path& path, std::vector<Entry> entries,
                              const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  Writer writer;
  writer.path_ = path;
  std::int64_t total = 0;
  for (Entry& entry : entries) {
    entry.first = total;
    total += entry.bytes();
    header[entry.name] = {{"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", {entry.first, total}}};
  }
  std::string text = header.dump();
  while ((kPrefix + static_cast<std::int64_t>(text.size())) % kAlignment != 0) text += ' ';
  if (static_cast<std::int64_t>(text.size()) > kMaximumHeader)
    return fail_environment(path.string(), "would have a header of " + std::to_string(text.size()) + " bytes");
  std::string prefix;
  for (unsigned i = 0; i < kPrefix; ++i) prefix += static_cast<char>(text.size() >> (8 * i) & 0xffU);
  text.insert(0, prefix);
  writer.descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (writer.descriptor_ < 0)
    return fail_environment(path.string(), std::string("cannot be opened: ") + std::strerror(errno));
  writer.left_ = static_cast<std::int64_t>(text.size()) + total;
  if (auto put = writer.put(text.data(), static_cast<std::int64_t>(text.size())); !put)
    return tl::unexpected<Error>(put.error());
  return writer;
}

Result<void> Writer::put(const void* data, std::int64_t bytes) {
  FORETRAIN_CHECK(bytes <= left_, "only the bytes of the tensors that were named follow");
  const char* from = static_cast<const char*>(data);
  left_ -= bytes;
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, from, static_cast<std::size_t>(bytes));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      return fail_environment(path_.string(), std::string("cannot be written: ") +
                                                  (written < 0 ? std::strerror(errno) : "the disk is full"));
    from += written;
    bytes -= written;
  }
  return {};
}

Result<void> Writer::finish() {
  FORETRAIN_CHECK(left_ == 0, "all tensors that were named have been written");
  const bool kept = ::fsync(descriptor_) == 0;
  const int problem = errno;
  const bool closed = ::close(std::exchange(descriptor_, -1)) == 0;
  if (kept && closed) return {};
  return fail_environment(path_.string(), std::string("cannot be written: ") + std::strerror(kept ? errno : problem));
}

} // namespace foretrain::safetensors
