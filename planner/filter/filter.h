#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "planner/filter/field.h"

namespace foretrain {

/// Three-valued: a figure that is not known (yet) decides nothing.
enum class Truth { no, unknown, yes };

/// A condition over fields: `tp == 8 and memory_gib < 70`, `schedule in [1f1b, zb-h1] or not (pp > 4)`,
/// `step_time_s < 900 ms`, `tp * pp <= 16`. Grammar in docs/cli.md. A parsed filter may be tested by many threads.
class Filter {
public:
  /// `where` names the source in errors ("--where", "study.json:/where"); the column follows it. Empty text admits all.
  [[nodiscard]] static Result<Filter> parse(std::string_view text, const std::string& where);

  /// `no` without slots and prediction is final: the layout need not be evaluated; nor need any other
  /// with the same settled dimensions.
  [[nodiscard]] Truth test(const FieldRow& row) const;
  [[nodiscard]] bool admits(const FieldRow& row) const { return test(row) == Truth::yes; }
  [[nodiscard]] bool empty() const { return nodes_.empty(); }

  enum class Operation {
    constant,
    field,
    logical_not,
    logical_and,
    logical_or,
    negate,
    add,
    subtract,
    multiply,
    divide,
    equal,
    unequal,
    less,
    less_equal,
    greater,
    greater_equal,
    in,
  };
  struct Node {
    Operation operation = Operation::constant;
    int left = -1; ///< indices of the operands
    int right = -1;
    FieldValue value;             ///< constant
    const Field* field = nullptr; ///< field
    std::vector<FieldValue> list; ///< in
  };

private:
  std::vector<Node> nodes_; ///< operands before their operation; the last is the whole condition
};

/// Longest filter text, and deepest nesting, that is accepted.
inline constexpr std::size_t kLongestFilter = 4096;
inline constexpr int kDeepestFilter = 64;

} // namespace foretrain
