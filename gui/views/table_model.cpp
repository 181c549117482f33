// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/table_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <QFont>

#include "gui/model/numbers.h"

namespace foretrain::gui {
namespace {

bool varies(const Session& session, const Field& field) {
  const auto& rows = session.rows();
  if (rows.empty()) return false;
  const FieldValue first = value_of(field, session.results().study, rows.front());
  return std::any_of(rows.begin(), rows.end(),
                     [&](const Row& row) { return value_of(field, session.results().study, row) != first; });
}

} // namespace

std::vector<std::string> table_columns(const Session& session) {
  if (!session.edits().columns.empty()) return session.edits().columns;
  std::vector<std::string> columns = {"step_time_s", "tokens_per_s_per_gpu", "mfu_percent", "memory_gib",
                                      "headroom_gib"};
  for (const Field& field : fields()) {
    if (field.outcome || field.id == "recompute" || field.id == "dp_shard" || field.id == "gpus") continue;
    if (session.rows().empty() ? field.dimension == Dimension::degrees : varies(session, field))
      columns.emplace_back(field.id);
  }
  columns.emplace_back("engine");
  return columns;
}

void TableModel::reload() {
  beginResetModel();
  rows_ = session_.shown();
  columns_.clear();
  for (const std::string& id : table_columns(session_))
    if (const Field* field = find_field(id)) columns_.push_back(field);
  scales_.assign(columns_.size(), {});
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    if (!columns_[c]->outcome || columns_[c]->kind != FieldKind::number) continue;
    Scale scale{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
    for (int position = 0; position < rowCount(); ++position) {
      const double value = number_at(position, static_cast<int>(c));
      if (std::isnan(value)) continue;
      scale.low = std::min(scale.low, value);
      scale.high = std::max(scale.high, value);
    }
    scales_[c] = scale;
  }
  endResetModel();
}

void TableModel::repaint() {
  if (rowCount() == 0) return;
  Q_EMIT dataChanged(index(0, 0), index(rowCount() - 1, columnCount() - 1));
  Q_EMIT headerDataChanged(Qt::Vertical, 0, rowCount() - 1);
}

int TableModel::row_at(int position) const {
  return position >= 0 && position < static_cast<int>(rows_.size()) ? rows_[static_cast<std::size_t>(position)] : -1;
}

int TableModel::position_of(int row) const {
  const auto found = std::find(rows_.begin(), rows_.end(), row);
  return found == rows_.end() ? -1 : static_cast<int>(found - rows_.begin());
}

int TableModel::rowCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

int TableModel::columnCount(const QModelIndex& parent) const {
  return parent.isValid() ? 0 : static_cast<int>(columns_.size());
}

double TableModel::number_at(int position, int column) const {
  return number_of(*columns_[static_cast<std::size_t>(column)], session_.results().study,
                   session_.rows()[static_cast<std::size_t>(row_at(position))]);
}

QVariant TableModel::delta_at(int position, int column) const {
  const Field& field = *columns_[static_cast<std::size_t>(column)];
  const int baseline = session_.baseline();
  if (baseline < 0 || baseline == row_at(position) || better_direction(field) == 0) return {};
  const double base = number_of(field, session_.results().study, session_.rows()[static_cast<std::size_t>(baseline)]);
  const double value = number_at(position, column);
  if (std::isnan(base) || std::isnan(value) || base == 0) return {};
  return (value / base - 1) * 100;
}

QVariant TableModel::data(const QModelIndex& index, int role) const {
  const int row = row_at(index.row());
  if (!index.isValid() || row < 0 || row >= static_cast<int>(session_.rows().size())) return {};
  const Field& field = *columns_[static_cast<std::size_t>(index.column())];
  const Scale& scale = scales_[static_cast<std::size_t>(index.column())];
  const auto value = [&] {
    return value_of(field, session_.results().study, session_.rows()[static_cast<std::size_t>(row)]);
  };
  const auto best = [&] {
    const int direction = better_direction(field);
    if (direction == 0 || !(scale.high > scale.low)) return false;
    return number_at(index.row(), index.column()) == (direction < 0 ? scale.low : scale.high);
  };
  switch (role) {
  case Qt::DisplayRole:
    return QString::fromStdString(short_value(field, value()));
  case Qt::ToolTipRole:
    return QString::fromStdString(std::string(field.help) + ": " + full_value(field, value()));
  case Qt::TextAlignmentRole:
    return QVariant::fromValue<Qt::Alignment>((field.kind == FieldKind::number ? Qt::AlignRight : Qt::AlignLeft) |
                                              Qt::AlignVCenter);
  case Qt::FontRole: {
    QFont font;
    font.setBold(best());
    return font;
  }
  case kBarRole: {
    if (!(scale.high > 0) || scale.low < 0) return {};
    const double number = number_at(index.row(), index.column());
    return std::isnan(number) ? QVariant() : QVariant(number / scale.high);
  }
  case kDeltaRole:
    return delta_at(index.row(), index.column());
  case kBestRole:
    return best();
  default:
    return {};
  }
}

bool TableModel::is_preferred(int row) const {
  return row >= 0 && row == session_.results().preferred && session_.results().tied_with_best > 1;
}

QVariant TableModel::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation == Qt::Vertical) {
    const int row = row_at(section);
    if (role == Qt::DisplayRole) {
      QString mark = row == session_.baseline() ? QStringLiteral("B ") : QString();
      if (is_preferred(row)) mark += QStringLiteral("✓ ");
      return mark + (session_.pinned(row) ? QStringLiteral("★ ") : QString()) + QString::number(row + 1);
    }
    if (role == Qt::TextAlignmentRole) return QVariant::fromValue<Qt::Alignment>(Qt::AlignRight | Qt::AlignVCenter);
    if (role == Qt::ToolTipRole && is_preferred(row))
      return QStringLiteral("rank; ✓: ") + QString::fromStdString(preferred_reason(session_.results()));
    if (role == Qt::ToolTipRole)
      return row == session_.baseline() ? QStringLiteral("rank; B: the baseline") : QStringLiteral("rank; ★: pinned");
    return {};
  }
  if (section < 0 || section >= columnCount()) return {};
  const Field& field = *columns_[static_cast<std::size_t>(section)];
  if (role == Qt::ToolTipRole) return QString::fromStdString(std::string(field.id) + ": " + std::string(field.help));
  if (role != Qt::DisplayRole) return {};
  QString title = QString::fromStdString(title_with_unit(field));
  const auto& sort = session_.edits().sort;
  for (std::size_t i = 0; i < sort.size(); ++i) {
    if (sort[i].field != field.id) continue;
    title += sort[i].descending ? QStringLiteral(" ▼") : QStringLiteral(" ▲");
    if (sort.size() > 1) title += QString::number(i + 1);
  }
  return title;
}

} // namespace foretrain::gui
