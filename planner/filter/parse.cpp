#include <algorithm>

#include <fmt/format.h>

#include "core/base/text.h"
#include "planner/filter/filter.h"
#include "planner/filter/part.h"
#include "planner/filter/tokens.h"

namespace foretrain {
namespace {

using Node = Filter::Node;
using Operation = Filter::Operation;
using Part = FilterPart;

/// Recursive descent; precedence from loosest: or, and, not, comparison and in, + -, * /, unary minus.
class Parser {
public:
  Parser(std::vector<Token> tokens, std::string where) : tokens_(std::move(tokens)), where_(std::move(where)) {}

  Result<std::vector<Node>> parse() {
    FORETRAIN_TRY(const Part whole, alternatives());
    if (peek().kind != TokenKind::end)
      return error(peek().column, fmt::format("'{}' is not expected here", peek().text));
    FORETRAIN_TRY(const Part condition, as_condition(whole));
    (void)condition;
    return std::move(nodes_);
  }

private:
  [[nodiscard]] const Token& peek() const { return tokens_[at_]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  [[nodiscard]] bool next_is(TokenKind kind, std::string_view text) const {
    return peek().kind == kind && peek().text == text;
  }
  bool accept(std::string_view symbol) {
    if (!next_is(TokenKind::symbol, symbol)) return false;
    take();
    return true;
  }
  bool accept_word(std::string_view word) {
    if (!next_is(TokenKind::word, word)) return false;
    take();
    return true;
  }

  [[nodiscard]] tl::unexpected<Error> error(std::size_t column, std::string message, std::string hint = {}) const {
    return fail(at_column(where_, column), std::move(message), std::move(hint));
  }
  [[nodiscard]] tl::unexpected<Error> unknown_field(const Part& part) const {
    const std::vector<std::string> ids = field_ids();
    return error(part.column, fmt::format("unknown field '{}'", part.word), hint_for(part.word, ids));
  }

  int push(Node node) {
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }
  Part operation(Operation operation, int left, int right, FilterType type, std::size_t column) {
    Node node;
    node.operation = operation;
    node.left = left;
    node.right = right;
    return {push(std::move(node)), type, std::nullopt, {}, column};
  }

  Result<Part> as_condition(const Part& part) const {
    if (part.type == FilterType::word) return unknown_field(part);
    if (part.type != FilterType::flag)
      return error(part.column, fmt::format("a condition is expected, not {}", name_of(part.type)),
                   "for example tp == 8");
    return part;
  }
  Result<Part> as_number(const Part& part) const {
    if (part.type == FilterType::word) return unknown_field(part);
    if (part.type != FilterType::number)
      return error(part.column, fmt::format("a number is expected, not {}", name_of(part.type)));
    return part;
  }

  Result<Part> alternatives() {
    if (++depth_ > kDeepestFilter)
      return error(peek().column, fmt::format("nests deeper than {} levels", kDeepestFilter));
    FORETRAIN_TRY(Part left, conjunction());
    while (accept_word("or") || accept("||")) {
      FORETRAIN_TRY(const Part right, conjunction());
      FORETRAIN_TRY(left, joined(Operation::logical_or, left, right));
    }
    --depth_;
    return left;
  }

  Result<Part> conjunction() {
    FORETRAIN_TRY(Part left, negation());
    while (accept_word("and") || accept("&&")) {
      FORETRAIN_TRY(const Part right, negation());
      FORETRAIN_TRY(left, joined(Operation::logical_and, left, right));
    }
    return left;
  }

  Result<Part> joined(Operation with, const Part& left, const Part& right) {
    FORETRAIN_TRY(const Part a, as_condition(left));
    FORETRAIN_TRY(const Part b, as_condition(right));
    if (++joins_ > kDeepestFilter * 4) return error(right.column, "too many conditions", "use 'in' with a list");
    return operation(with, a.node, b.node, FilterType::flag, a.column);
  }

  Result<Part> negation() {
    const std::size_t column = peek().column;
    if (!accept_word("not") && !accept("!")) return relation();
    if (++depth_ > kDeepestFilter) return error(column, fmt::format("nests deeper than {} levels", kDeepestFilter));
    FORETRAIN_TRY(const Part inner, negation());
    --depth_;
    FORETRAIN_TRY(const Part condition, as_condition(inner));
    return operation(Operation::logical_not, condition.node, -1, FilterType::flag, column);
  }

  Result<Part> relation() {
    FORETRAIN_TRY(const Part left, sum());
    const Token& token = peek();
    if (token.kind == TokenKind::word && (token.text == "in" || token.text == "not")) return membership(left);
    const auto kind = token.kind == TokenKind::symbol ? comparison(token.text) : std::nullopt;
    if (!kind) return left;
    take();
    FORETRAIN_TRY(const Part right, sum());
    return compared(*kind, left, right);
  }

  /// The field whose values a text may have: that of the other side.
  [[nodiscard]] const Field* field_of(const Part& part) const {
    return part.node >= 0 ? nodes_[static_cast<std::size_t>(part.node)].field : nullptr;
  }

  Result<Part> text_for(const Part& part, const Field& field) {
    if (part.type == FilterType::text && part.node >= 0 && !part.word.empty()) return part;
    if (!field.values.empty() && std::find(field.values.begin(), field.values.end(), part.word) == field.values.end())
      return error(part.column, fmt::format("{} is never '{}'", field.id, part.word),
                   hint_for(part.word, field.values));
    Node node;
    node.value = part.word;
    return Part{push(std::move(node)), FilterType::text, std::nullopt, part.word, part.column};
  }

  Result<Part> compared(Operation with, Part left, Part right) {
    const auto is_text = [](const Part& part) {
      return part.type == FilterType::text || part.type == FilterType::word;
    };
    if (is_text(left) || is_text(right)) {
      const Field* field = field_of(left) ? field_of(left) : field_of(right);
      if (!field) return left.type == FilterType::word ? unknown_field(left) : unknown_field_or_text(right);
      if (field->kind != FieldKind::text || !is_text(left) || !is_text(right)) {
        if (left.type == FilterType::word) return unknown_field(left);
        if (right.type == FilterType::word) return unknown_field(right);
        const Part& other = field_of(left) ? right : left;
        if (field->kind == FieldKind::text && !field->values.empty())
          return error(other.column, fmt::format("{} cannot be compared with {}", field->id, name_of(other.type)),
                       hint_for("", field->values));
        return error(right.column,
                     fmt::format("{} cannot be compared with {}", name_of(left.type), name_of(right.type)));
      }
      if (with != Operation::equal && with != Operation::unequal)
        return error(left.column, fmt::format("{} is a text: it has no order", field->id), "use == or !=");
      if (!field_of(left)) {
        FORETRAIN_TRY(left, text_for(left, *field));
      }
      if (!field_of(right)) {
        FORETRAIN_TRY(right, text_for(right, *field));
      }
      return operation(with, left.node, right.node, FilterType::flag, left.column);
    }
    if (left.type != right.type)
      return error(right.column, fmt::format("{} cannot be compared with {}", name_of(left.type), name_of(right.type)));
    if (left.type == FilterType::flag && with != Operation::equal && with != Operation::unequal)
      return error(left.column, "a yes or no has no order", "use == or !=");
    FORETRAIN_TRY(const auto unit, common_unit(left, right));
    (void)unit;
    return operation(with, left.node, right.node, FilterType::flag, left.column);
  }

  [[nodiscard]] tl::unexpected<Error> unknown_field_or_text(const Part& part) const {
    if (part.type == FilterType::word) return unknown_field(part);
    return error(part.column, "two texts are compared, but no field", "for example schedule == 1f1b");
  }

  Result<std::optional<std::string>> common_unit(const Part& left, const Part& right) const {
    if (!left.unit) return right.unit;
    if (right.unit && *right.unit != *left.unit) {
      const auto named = [](const std::string& unit) { return unit.empty() ? std::string("a count") : "in " + unit; };
      return error(right.column, fmt::format("one side is {}, the other {}", named(*left.unit), named(*right.unit)));
    }
    return left.unit;
  }

  Result<Part> membership(const Part& left) {
    const std::size_t column = peek().column;
    const bool negated = accept_word("not");
    if (!accept_word("in")) return error(peek().column, "'in' is expected after 'not'", "for example tp not in [1, 2]");
    const bool square = accept("[");
    if (!square && !accept("(")) return error(peek().column, "a list is expected", "for example tp in [4, 8]");
    if (left.type == FilterType::word) return unknown_field(left);
    if (left.type == FilterType::text && !field_of(left)) return unknown_field_or_text(left);
    Node node;
    node.operation = Operation::in;
    node.left = left.node;
    while (true) {
      FORETRAIN_TRY(FieldValue entry, list_entry(left));
      node.list.push_back(std::move(entry));
      if (accept(",")) continue;
      if (accept(square ? "]" : ")")) break;
      return error(peek().column, "the list is not closed", square ? "]" : ")");
    }
    const Part part{push(std::move(node)), FilterType::flag, std::nullopt, {}, left.column};
    return negated ? operation(Operation::logical_not, part.node, -1, FilterType::flag, column) : part;
  }

  /// One constant of a list, of the type of what is looked up in it.
  Result<FieldValue> list_entry(const Part& left) {
    const std::size_t nodes = nodes_.size();
    FORETRAIN_TRY(Part entry, sum());
    const Field* field = field_of(left);
    if (left.type == FilterType::text && field && (entry.type == FilterType::word || entry.type == FilterType::text) &&
        !field_of(entry)) {
      FORETRAIN_TRY(entry, text_for(entry, *field));
    }
    if (entry.type == FilterType::word) return unknown_field(entry);
    if (entry.type != left.type)
      return error(entry.column,
                   fmt::format("the list holds {}, what is looked up is {}", name_of(entry.type), name_of(left.type)));
    FORETRAIN_TRY(const auto unit, common_unit(left, entry));
    (void)unit;
    const Node& node = nodes_[static_cast<std::size_t>(entry.node)];
    if (node.operation != Operation::constant)
      return error(entry.column, "a list holds constants only", "compare with == instead");
    FieldValue value = node.value;
    nodes_.resize(nodes);
    return value;
  }

  Result<Part> sum() {
    FORETRAIN_TRY(Part left, product());
    while (next_is(TokenKind::symbol, "+") || next_is(TokenKind::symbol, "-")) {
      const bool plus = take().text == "+";
      FORETRAIN_TRY(const Part right, product());
      FORETRAIN_TRY(left, calculated(plus ? Operation::add : Operation::subtract, left, right));
    }
    return left;
  }

  Result<Part> product() {
    FORETRAIN_TRY(Part left, unary());
    while (next_is(TokenKind::symbol, "*") || next_is(TokenKind::symbol, "/")) {
      const bool times = take().text == "*";
      FORETRAIN_TRY(const Part right, unary());
      FORETRAIN_TRY(left, calculated(times ? Operation::multiply : Operation::divide, left, right));
    }
    return left;
  }

  Result<Part> calculated(Operation with, const Part& left, const Part& right) {
    FORETRAIN_TRY(const Part a, as_number(left));
    FORETRAIN_TRY(const Part b, as_number(right));
    if (++joins_ > kDeepestFilter * 4) return error(b.column, "too many terms");
    Part result = operation(with, a.node, b.node, FilterType::number, a.column);
    if (with == Operation::add || with == Operation::subtract) {
      FORETRAIN_TRY(result.unit, common_unit(a, b));
    }
    return result;
  }

  Result<Part> unary() {
    const std::size_t column = peek().column;
    if (!accept("-")) return primary();
    if (++depth_ > kDeepestFilter) return error(column, fmt::format("nests deeper than {} levels", kDeepestFilter));
    FORETRAIN_TRY(const Part operand, unary());
    --depth_;
    FORETRAIN_TRY(const Part inner, as_number(operand));
    if (nodes_.back().operation == Operation::constant) { // a negative constant
      nodes_.back().value = -std::get<double>(nodes_.back().value);
      return inner;
    }
    Part result = operation(Operation::negate, inner.node, -1, FilterType::number, column);
    result.unit = inner.unit;
    return result;
  }

  Result<Part> primary() {
    const Token& token = peek();
    switch (token.kind) {
    case TokenKind::number:
      return quantity();
    case TokenKind::word:
      return named();
    case TokenKind::quoted: {
      take();
      return Part{-1, FilterType::text, std::nullopt, token.text, token.column};
    }
    case TokenKind::symbol:
      if (token.text == "(") return parenthesised();
      break;
    case TokenKind::end:
      return error(token.column, "the filter ends here, but something must follow");
    }
    return error(token.column, fmt::format("'{}' is not expected here", token.text));
  }

  Result<Part> parenthesised() {
    const std::size_t column = take().column;
    FORETRAIN_TRY(const Part inner, alternatives());
    if (!accept(")")) return error(peek().column, "')' is expected", fmt::format("it closes column {}", column));
    return inner;
  }

  /// A number with an optional unit: sizes become GiB, times seconds, as the fields are.
  Result<Part> quantity() {
    const Token& token = take();
    double value = token.number;
    Part part{-1, FilterType::number, std::nullopt, {}, token.column};
    const std::string unit = peek().kind == TokenKind::word || next_is(TokenKind::symbol, "%") ? peek().text : "";
    if (const auto bytes = parse_bytes("1 " + unit)) {
      value *= static_cast<double>(bytes->value) / static_cast<double>(kGiB);
      part.unit = "GiB";
    } else if (const auto seconds = parse_seconds("1 " + unit)) {
      value *= seconds->value;
      part.unit = "s";
    } else if (unit == "%") {
      part.unit = "%";
    }
    if (part.unit) take();
    Node node;
    node.value = value;
    part.node = push(std::move(node));
    return part;
  }

  Result<Part> named() {
    const Token& token = take();
    if (token.text == "true" || token.text == "yes" || token.text == "false" || token.text == "no") {
      Node node;
      node.value = token.text == "true" || token.text == "yes";
      return Part{push(std::move(node)), FilterType::flag, std::nullopt, {}, token.column};
    }
    for (const std::string_view keyword : {"and", "or", "not", "in"})
      if (token.text == keyword) return error(token.column, fmt::format("'{}' is not expected here", token.text));
    const Field* field = find_field(token.text);
    if (!field) return Part{-1, FilterType::word, std::nullopt, token.text, token.column};
    Node node;
    node.operation = Operation::field;
    node.field = field;
    Part part{push(std::move(node)), FilterType::number, std::nullopt, {}, token.column};
    switch (field->kind) {
    case FieldKind::number:
      part.unit = std::string(field->unit);
      break;
    case FieldKind::text:
      part.type = FilterType::text;
      break;
    case FieldKind::flag:
      part.type = FilterType::flag;
      break;
    }
    return part;
  }

  std::vector<Token> tokens_;
  std::string where_;
  std::vector<Node> nodes_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int joins_ = 0;
};

} // namespace

Result<Filter> Filter::parse(std::string_view text, const std::string& where) {
  if (text.size() > kLongestFilter)
    return fail(where,
                fmt::format("the filter has {} characters, at most {} are accepted", text.size(), kLongestFilter));
  Filter filter;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return filter;
  FORETRAIN_TRY(std::vector<Token> tokens, tokens_of(text, where));
  Parser parser(std::move(tokens), where);
  FORETRAIN_TRY(filter.nodes_, parser.parse());
  return filter;
}

} // namespace foretrain
