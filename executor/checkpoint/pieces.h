#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "executor/checkpoint/safetensors.h"
#include "executor/slices.h"

/// Parts of whole tensors in files, cut in whatever way, put together in whatever other way.
namespace foretrain {

/// Neighbouring elements of a whole tensor (flattened), and where they lie in a part of it.
struct Stretch {
  std::int64_t whole = 0;
  std::int64_t part = 0;
  std::int64_t count = 0;
  bool operator==(const Stretch&) const = default;
};

/// Of the elements [first, first + count) of a rank's slice (flattened); ascending in both.
[[nodiscard]] std::vector<Stretch> stretches_of(const Slice& slice, std::int64_t first, std::int64_t count);

/// Part of one whole tensor in the memory of a rank.
struct StatePart {
  std::string key;                 ///< what it is and of which parameter: "weight/layers.3.qkv"
  std::string type;                ///< of elements, as safetensors spells it: F64, F32 or BF16
  std::vector<std::int64_t> shape; ///< of the whole tensor, without padding
  Slice slice;                     ///< of it on this rank …
  std::int64_t first = 0;          ///< … and the elements of that which are meant
  std::int64_t count = 0;
  void* data = nullptr; ///< [count]

  [[nodiscard]] std::int64_t whole_elements() const;
  /// Elements of [first, first + count) that are not padding: padding comes last.
  [[nodiscard]] std::int64_t unpadded() const;
};

/// Tensors in files, each cut into pieces that may lie in several files. Not for several threads at once.
class PieceSource {
public:
  struct Piece {
    std::shared_ptr<const safetensors::File> file;
    std::string tensor;             ///< its name in the file
    std::vector<Stretch> stretches; ///< ascending
    std::string digest;             ///< of its bytes; empty: not known, or found right
  };
  void add(const std::string& key, Piece piece);
  [[nodiscard]] bool has(const std::string& key) const { return pieces_.count(key) > 0; }

  /// Reads `part` from the pieces of `key`, converted to the part's type; padding is left alone. A piece whose digest
  /// is known is read whole and checked, once; of others only what is needed is read. Errors: there is none, elements
  /// are missing or there twice, bytes are damaged, elements are no floating-point numbers.
  [[nodiscard]] Result<void> fill(const StatePart& part, const std::string& key);

private:
  std::map<std::string, std::vector<Piece>> pieces_;
};

/// Floating-point numbers of one type (F64, F32, F16, BF16) as another (F64, F32, BF16), rounded to nearest, ties to
/// even; F64 to BF16 by way of F32. False: no such types.
[[nodiscard]] bool convert(const std::string& from_type, const void* from, const std::string& to_type, void* to,
                           std::int64_t count);

} // namespace foretrain
