// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <vector>

#include <QColor>
#include <QHeaderView>

class QLineEdit;
class QTableView;
class QTimer;

namespace foretrain::gui {

/// Column titles with a filter box under each. What is typed is handed on 150 ms after the last key, or on Return.
class FilterHeader final : public QHeaderView {
public:
  explicit FilterHeader(QTableView* table);

  /// One box per column, with what it holds.
  void set_boxes(const std::vector<std::pair<QString, QString>>& names_and_texts, const QString& help);
  /// Marks a box whose text does not read; empty error: it does.
  void set_error(int column, const QString& error);
  void set_error_color(const QColor& color) { error_color_ = color; }
  void focus_box(int column);

  std::function<void(int column, const QString& text)> typed;

  [[nodiscard]] QSize sizeHint() const override;

protected:
  void updateGeometries() override;

private:
  void place_boxes();
  void hand_on();

  std::vector<QLineEdit*> boxes_;
  QTimer* timer_ = nullptr;
  QColor error_color_;
  std::vector<int> waiting_; ///< columns with text that was not handed on
};

} // namespace foretrain::gui
