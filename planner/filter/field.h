#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/spec/cluster.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/prediction.h"
#include "planner/dimension.h"

namespace foretrain {

struct Evaluation;

/// A layout with what is known of it: a row of a table. Without slots and prediction its outcome fields are unknown.
struct FieldRow {
  const JobSpec& job;
  const ClusterSpec& cluster;
  const Layout& layout;
  const Evaluation* slots = nullptr;
  const Prediction* prediction = nullptr;   ///< preferred to `slots` where both know a figure
  Dimension settled = Dimension::recompute; ///< of the layout, the dimensions up to this one are settled
  bool provisional = false;                 ///< a finer prediction follows: the engine is not known yet
};

enum class FieldKind { number, text, flag };

/// Unknown, or a flag, a number in the field's unit, or a text.
using FieldValue = std::variant<std::monostate, bool, double, std::string>;

/// A column: tables, CSV and filters take it from the one list. Adding an entry adds it everywhere.
struct Field {
  std::string_view id;    ///< "memory_gib": also the CSV header and the name in filters
  std::string_view title; ///< short, for table heads
  std::string_view unit;  ///< "GiB", "s", "%" …; empty: a count, a text
  std::string_view help;  ///< one sentence without a full stop
  FieldKind kind = FieldKind::number;
  int decimals = 0;                           ///< shown in tables
  bool outcome = false;                       ///< known only once a layout was evaluated
  Dimension dimension = Dimension::recompute; ///< of the layout: what it looks at, innermost
  std::vector<std::string> values;            ///< text: every value there is; empty: any
  FieldValue (*get)(const FieldRow& row) = nullptr;
};

/// All fields: the layout first, then its outcome.
[[nodiscard]] std::span<const Field> fields();
[[nodiscard]] const Field* find_field(std::string_view id);
[[nodiscard]] std::vector<std::string> field_ids();

/// For tables: `decimals` places, "-" when unknown, "yes" and "no".
[[nodiscard]] std::string format_value(const Field& field, const FieldValue& value);
/// For CSV: shortest text that reads back to the same number, empty when unknown; texts quoted where CSV needs it.
[[nodiscard]] std::string csv_value(const FieldValue& value);

} // namespace foretrain
