// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>

#include <QWidget>

#include "gui/model/session.h"
#include "gui/plot/theme.h"

class QCompleter;
class QHBoxLayout;
class QLabel;
class QLineEdit;
class QStringListModel;
class QTimer;
class QTextBrowser;

namespace foretrain::gui {

/// One expression over all fields, with completion; under it a chip for every active filter.
class FilterBar final : public QWidget {
public:
  explicit FilterBar(Session& session, QWidget* parent = nullptr);
  ~FilterBar() override;
  void set_theme(const Theme& theme);
  void focus_box();

private:
  void apply(bool still_typing = false);
  void underline(const QString& place); ///< "…, column 7" of an error; empty: nothing
  void show_chips();
  void complete();

  Session& session_;
  const Theme* theme_ = &light_theme();
  int observer_ = 0;
  QLineEdit* box_;
  QLabel* error_;
  QWidget* chips_;
  QHBoxLayout* chip_layout_;
  QStringListModel* words_;
  QCompleter* completer_;
  QTimer* timer_;
};

/// Why the selected layout stands where it stands.
class DetailsPanel final : public QWidget {
public:
  explicit DetailsPanel(Session& session, QWidget* parent = nullptr);
  ~DetailsPanel() override;
  void set_theme(const Theme& theme);

private:
  void refresh();

  Session& session_;
  const Theme* theme_ = &light_theme();
  int observer_ = 0;
  QTextBrowser* text_;
};

/// What a newcomer sees: three studies to begin with, recent files, how to make one's own.
class StartPage final : public QWidget {
public:
  explicit StartPage(QWidget* parent = nullptr);
  void set_recent(const QStringList& files);
  /// What could not be opened, and why: there is no list of problems here. Empty: nothing.
  void set_problems(const QString& text);
  std::function<void(int example)> example_chosen;
  std::function<void(const QString& file)> file_chosen;
  std::function<void()> new_chosen;
  std::function<void()> open_chosen;

private:
  QWidget* recent_;
  QLabel* problems_;
};

} // namespace foretrain::gui
