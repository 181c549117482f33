// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QAbstractTableModel>

#include "gui/model/session.h"
#include "gui/plot/theme.h"

namespace foretrain::gui {

/// The shown rows of the session: already filtered and sorted, so that nothing is sorted here.
class TableModel final : public QAbstractTableModel {
public:
  enum Role { kBarRole = Qt::UserRole, kDeltaRole, kBestRole };

  explicit TableModel(Session& session) : session_(session) {}

  void set_theme(const Theme& theme) { theme_ = &theme; }
  /// Takes over columns and rows.
  void reload();
  /// Selection and pins: the same rows, painted anew.
  void repaint();

  [[nodiscard]] const std::vector<const Field*>& columns() const { return columns_; }
  [[nodiscard]] int row_at(int position) const;
  [[nodiscard]] int position_of(int row) const; ///< -1: not shown

  [[nodiscard]] int rowCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] int columnCount(const QModelIndex& parent = {}) const override;
  [[nodiscard]] QVariant data(const QModelIndex& index, int role) const override;
  [[nodiscard]] QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

private:
  struct Scale {
    double low = 0;
    double high = 0;
  };
  [[nodiscard]] double number_at(int position, int column) const;
  [[nodiscard]] QVariant delta_at(int position, int column) const;
  /// The one to take among rows that tie with the best.
  [[nodiscard]] bool is_preferred(int row) const;

  Session& session_;
  const Theme* theme_ = &light_theme();
  std::vector<const Field*> columns_;
  std::vector<Scale> scales_;
  std::vector<int> rows_; ///< as they were at `reload`
};

/// Columns of the table: those chosen, else outcomes with what varies between the layouts.
[[nodiscard]] std::vector<std::string> table_columns(const Session& session);

} // namespace foretrain::gui
