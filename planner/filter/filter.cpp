#include "planner/filter/filter.h"

#include "core/base/check.h"

namespace foretrain {
namespace {

using Operation = Filter::Operation;
using Node = Filter::Node;

FieldValue of_truth(Truth truth) {
  return truth == Truth::unknown ? FieldValue() : FieldValue(truth == Truth::yes);
}

Truth truth_of(const FieldValue& value) {
  const bool* flag = std::get_if<bool>(&value);
  return !flag ? Truth::unknown : *flag ? Truth::yes : Truth::no;
}

bool unknown(const FieldValue& value) {
  return std::holds_alternative<std::monostate>(value);
}

FieldValue arithmetic(Operation operation, const FieldValue& left, const FieldValue& right) {
  if (unknown(left) || unknown(right)) return {};
  const double a = std::get<double>(left);
  const double b = std::get<double>(right);
  if (operation == Operation::add) return a + b;
  if (operation == Operation::subtract) return a - b;
  if (operation == Operation::multiply) return a * b;
  return b == 0 ? FieldValue() : FieldValue(a / b);
}

FieldValue compare(Operation operation, const FieldValue& left, const FieldValue& right) {
  if (unknown(left) || unknown(right)) return {};
  if (operation == Operation::equal) return left == right;
  if (operation == Operation::unequal) return left != right;
  const double a = std::get<double>(left);
  const double b = std::get<double>(right);
  if (operation == Operation::less) return a < b;
  if (operation == Operation::less_equal) return a <= b;
  if (operation == Operation::greater) return a > b;
  return a >= b;
}

FieldValue contains(const FieldValue& value, const std::vector<FieldValue>& list) {
  if (unknown(value)) return {};
  for (const FieldValue& entry : list)
    if (entry == value) return true;
  return false;
}

/// Recursion is bounded: the parser refuses texts that nest deeper than kDeepestFilter.
class TreeWalk {
public:
  TreeWalk(const std::vector<Node>& nodes, const FieldRow& row) : nodes_(nodes), row_(row) {}

  FieldValue value_of(int index) const {
    const Node& node = nodes_[static_cast<std::size_t>(index)];
    switch (node.operation) {
    case Operation::constant:
      return node.value;
    case Operation::field:
      return row_.settled < node.field->dimension ? FieldValue() : node.field->get(row_);
    case Operation::logical_not: {
      const Truth truth = truth_of(value_of(node.left));
      return truth == Truth::unknown ? FieldValue() : FieldValue(truth == Truth::no);
    }
    case Operation::logical_and:
      return both(node, Truth::no);
    case Operation::logical_or:
      return both(node, Truth::yes);
    case Operation::negate: {
      const FieldValue value = value_of(node.left);
      return unknown(value) ? FieldValue() : FieldValue(-std::get<double>(value));
    }
    case Operation::add:
    case Operation::subtract:
    case Operation::multiply:
    case Operation::divide:
      return arithmetic(node.operation, value_of(node.left), value_of(node.right));
    case Operation::equal:
    case Operation::unequal:
    case Operation::less:
    case Operation::less_equal:
    case Operation::greater:
    case Operation::greater_equal:
      return compare(node.operation, value_of(node.left), value_of(node.right));
    case Operation::in:
      return contains(value_of(node.left), node.list);
    }
    FORETRAIN_CHECK(false, "every operation has a value");
  }

private:
  /// And, or: `deciding` on either side settles it; otherwise one unknown side leaves it open.
  FieldValue both(const Node& node, Truth deciding) const {
    const Truth left = truth_of(value_of(node.left));
    if (left == deciding) return of_truth(deciding);
    const Truth right = truth_of(value_of(node.right));
    if (right == deciding) return of_truth(deciding);
    if (left == Truth::unknown || right == Truth::unknown) return {};
    return of_truth(left);
  }

  const std::vector<Node>& nodes_;
  const FieldRow& row_;
};

} // namespace

Truth Filter::test(const FieldRow& row) const {
  if (nodes_.empty()) return Truth::yes;
  return truth_of(TreeWalk(nodes_, row).value_of(static_cast<int>(nodes_.size()) - 1));
}

} // namespace foretrain
