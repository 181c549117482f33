// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <memory>

#include <QWidget>

#include "gui/model/session.h"
#include "gui/plot/theme.h"

class QLabel;
class QListWidget;
class QLineEdit;
class QTreeWidget;
class QTreeWidgetItem;

namespace foretrain::gui {

/// The study as a form with its problems: every member of the schema, with unit, range, help and inherited default.
class StudyEditor final : public QWidget {
public:
  explicit StudyEditor(Session& session, QWidget* parent = nullptr);
  ~StudyEditor() override;
  void set_theme(const Theme& theme);
  /// Selects the field of an error's place ("study:/job/global_batch").
  void go_to(const QString& where);
  void focus_search();

private:
  void rebuild();
  void show_problems();
  void take(QTreeWidgetItem* item);
  void filter(const QString& text);

  Session& session_;
  const Theme* theme_ = &light_theme();
  int observer_ = 0;
  QLineEdit* search_;
  QTreeWidget* tree_;
  QLabel* heading_;
  QListWidget* problems_;
  bool filling_ = false;
  std::vector<struct FormField> fields_;
};

} // namespace foretrain::gui
