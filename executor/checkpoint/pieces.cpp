#include "executor/checkpoint/pieces.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "core/base/digest.h"

namespace foretrain {
namespace {

/// Elements read at a time where a piece need not be read whole.
constexpr std::int64_t kWindow = std::int64_t{1} << 23;

float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16U;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

std::uint16_t to_bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);
}

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10U & 0x1f;
  const int fraction = bits & 0x3ff;
  const float sign = bits & 0x8000U ? -1.0F : 1.0F;
  if (exponent == 0x1f) return fraction ? std::nanf("") : sign * HUGE_VALF;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
}

/// Element i of `from`, in double; a half precision number is exact in it.
double number(const std::string& type, const char* from, std::int64_t i) {
  const auto read = [&](auto value) {
    std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof value), sizeof value);
    return value;
  };
  if (type == "F64") return read(0.0);
  if (type == "F32") return read(0.0F);
  const std::uint16_t bits = read(std::uint16_t{0});
  return type == "BF16" ? from_bf16(bits) : from_half(bits);
}

bool is_number(const std::string& type) {
  return type == "F64" || type == "F32" || type == "F16" || type == "BF16";
}

/// Where a piece and a part have the same elements.
struct Copy {
  std::int64_t from = 0; ///< element of the piece
  std::int64_t to = 0;   ///< element of the part
  std::int64_t count = 0;
};

std::vector<Copy> meet(const std::vector<Stretch>& piece, const std::vector<Stretch>& part) {
  std::vector<Copy> copies;
  auto a = piece.begin();
  auto b = part.begin();
  while (a != piece.end() && b != part.end()) {
    const std::int64_t first = std::max(a->whole, b->whole);
    const std::int64_t end = std::min(a->whole + a->count, b->whole + b->count);
    if (end > first) copies.push_back({a->part + first - a->whole, b->part + first - b->whole, end - first});
    if (a->whole + a->count < b->whole + b->count)
      ++a;
    else
      ++b;
  }
  return copies;
}

Result<void> put(const StatePart& part, const safetensors::Entry& entry, const std::vector<char>& bytes,
                 std::int64_t begin, const Copy& copy) {
  const char* from = bytes.data() + (copy.from - begin) * safetensors::width_of(entry.type);
  char* to = static_cast<char*>(part.data) + copy.to * safetensors::width_of(part.type);
  if (convert(entry.type, from, part.type, to, copy.count)) return {};
  return fail_environment(entry.name, "has elements of type " + entry.type, "F64, F32, F16 or BF16 were expected");
}

Result<void> copy_all(const StatePart& part, PieceSource::Piece& piece, const std::vector<Copy>& copies) {
  const safetensors::Entry& entry = piece.file->entries().at(piece.tensor);
  const std::int64_t width = safetensors::width_of(entry.type);
  std::vector<char> bytes;
  if (!piece.digest.empty()) {
    bytes.resize(static_cast<std::size_t>(entry.bytes()));
    if (auto read = piece.file->read(entry, 0, entry.elements(), bytes.data()); !read) return read;
    if (digest({bytes.data(), bytes.size()}) != piece.digest)
      return fail_environment(piece.file->path().string(),
                              "is damaged: the bytes of " + piece.tensor + " are not those that were written");
    piece.digest.clear();
    for (const Copy& copy : copies)
      if (auto done = put(part, entry, bytes, 0, copy); !done) return done;
    return {};
  }
  for (std::size_t i = 0; i < copies.size();) {
    // As many copies as fit one window; one that is longer than a window is taken by itself.
    const std::int64_t begin = copies[i].from;
    std::size_t end = i + 1;
    while (end < copies.size() && copies[end].from >= begin && copies[end].from + copies[end].count - begin <= kWindow)
      ++end;
    const std::int64_t count = copies[end - 1].from + copies[end - 1].count - begin;
    bytes.resize(static_cast<std::size_t>(count * width));
    if (auto read = piece.file->read(entry, begin, count, bytes.data()); !read) return read;
    for (; i < end; ++i)
      if (auto done = put(part, entry, bytes, begin, copies[i]); !done) return done;
  }
  return {};
}

} // namespace

bool convert(const std::string& from_type, const void* from, const std::string& to_type, void* to, std::int64_t count) {
  if (!is_number(from_type) || !is_number(to_type) || to_type == "F16") return false;
  char* out = static_cast<char*>(to);
  if (from_type == to_type) {
    std::memcpy(out, from, static_cast<std::size_t>(count * safetensors::width_of(to_type)));
    return true;
  }
  const char* in = static_cast<const char*>(from);
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = number(from_type, in, i);
    const auto write = [&](auto result) {
      std::memcpy(out + i * static_cast<std::int64_t>(sizeof result), &result, sizeof result);
    };
    if (to_type == "F64")
      write(value);
    else if (to_type == "F32")
      write(static_cast<float>(value));
    else
      write(to_bf16(static_cast<float>(value)));
  }
  return true;
}

std::vector<Stretch> stretches_of(const Slice& slice, std::int64_t first, std::int64_t count) {
  std::vector<Stretch> list;
  std::int64_t local = 0; // of the slice
  const auto add = [&](std::int64_t whole, std::int64_t length) {
    const std::int64_t begin = std::max(first, local);
    const std::int64_t end = std::min(first + count, local + length);
    if (end > begin) {
      const Stretch stretch{whole + begin - local, begin - first, end - begin};
      if (!list.empty() && list.back().whole + list.back().count == stretch.whole)
        list.back().count += stretch.count;
      else
        list.push_back(stretch);
    }
    local += length;
  };
  for (const Slice::Rows& piece : slice.rows) {
    if (slice.columns == slice.whole_columns) {
      add(piece.first * slice.whole_columns, piece.count * slice.columns);
      continue;
    }
    for (std::int64_t row = piece.first; row < piece.first + piece.count; ++row)
      add(row * slice.whole_columns + slice.first_column, slice.columns);
  }
  return list;
}

std::int64_t StatePart::whole_elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::int64_t StatePart::unpadded() const {
  std::int64_t inside = 0;
  const std::int64_t whole = whole_elements();
  for (const Stretch& stretch : stretches_of(slice, first, count))
    inside += std::clamp<std::int64_t>(whole - stretch.whole, 0, stretch.count);
  return inside;
}

void PieceSource::add(const std::string& key, Piece piece) {
  pieces_[key].push_back(std::move(piece));
}

Result<void> PieceSource::fill(const StatePart& part, const std::string& key) {
  const auto found = pieces_.find(key);
  if (found == pieces_.end()) return fail_environment(key, "is not in the files");
  const std::vector<Stretch> wanted = stretches_of(part.slice, part.first, part.count);
  std::int64_t got = 0;
  for (Piece& piece : found->second) {
    const std::vector<Copy> copies = meet(piece.stretches, wanted);
    if (copies.empty()) continue;
    for (const Copy& copy : copies) got += copy.count;
    if (auto done = copy_all(part, piece, copies); !done) return done;
  }
  const std::int64_t needed = part.unpadded();
  if (got == needed) return {};
  return fail_environment(key,
                          std::to_string(got) + " elements were found where " + std::to_string(needed) + " are needed",
                          got < needed ? "a shard is missing" : "two shards have the same elements");
}

} // namespace foretrain
