// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <map>
#include <memory>

#include <QMainWindow>

#include "gui/model/commands.h"
#include "gui/model/session.h"
#include "gui/plot/theme.h"

class QDockWidget;
class QLabel;
class QProgressBar;
class QPushButton;
class QSettings;
class QSplitter;
class QStackedWidget;
class QTabWidget;
class QTimer;
class QToolButton;
class QUndoStack;

namespace foretrain::gui {

inline constexpr int kStateVersion = 1;       ///< of docks and bars
inline constexpr int kFrameMilliseconds = 40; ///< between two pictures of a step that plays

class DetailsPanel;
class FilterBar;
class Program;
class StartPage;
class StudyEditor;
class View;

/// Dialogs that give a path; tests answer instead.
struct AskPath {
  std::function<QString(const QString& title, const QString& filter)> open;
  std::function<QString(const QString& title, const QString& suggestion, const QString& filter)> save;
  /// At the end, when another window has changed the file: whether this one's state takes its place. Absent: it does
  /// not.
  std::function<bool()> keep_mine;
  /// Pixels per point of a picture. Absent: two.
  std::function<std::optional<double>()> scale;
  /// A line of text, beginning with what there is. Absent: nothing is changed.
  std::function<std::optional<QString>(const QString& title, const QString& before)> text;
};

/// The window on one session.
class MainWindow final : public QMainWindow {
public:
  /// `settings` keeps sizes, theme and recent files.
  MainWindow(Environment environment, std::unique_ptr<QSettings> settings);
  ~MainWindow() override;

  [[nodiscard]] Session& session() { return session_; }
  [[nodiscard]] CommandRegistry& commands() { return commands_; }
  [[nodiscard]] QUndoStack& undo_stack() { return *undo_; }
  [[nodiscard]] View* view(std::string_view id) const;
  [[nodiscard]] View* current_view() const; ///< the plot in front, or the table when it has the focus

  void open(const QString& file);
  void show_view(const std::string& id);
  /// "light", "dark", "system"
  void set_theme(const QString& name);
  void reset_layout();
  AskPath ask;

protected:
  void closeEvent(QCloseEvent* event) override;
  void dragEnterEvent(QDragEnterEvent* event) override;
  void dropEvent(QDropEvent* event) override;
  void changeEvent(QEvent* event) override;

private:
  friend void add_commands(MainWindow& window);
  void build_center();
  void build_docks();
  void build_bars();
  void build_menus();
  void take_changes(Changes changes);
  void update_title();
  void widen_docks();
  void update_tools();            ///< grey when there is nothing to do
  void scale_font(double factor); ///< 0: back to the usual
  void export_current();
  void open_example(int number);
  void new_study();
  void show_keys();
  void show_palette();
  void show_about();
  void save_plan(bool trace);
  /// `again`: what an undone import took in, to be filled anew.
  void import_runs(const QStringList& files, const std::shared_ptr<std::vector<std::int64_t>>& again = nullptr);
  void remember_acts();
  void note();          ///< of the current layout
  void show_as_table(); ///< what the view in front shows
  void toggle(QDockWidget* dock);
  void save_state();
  void play(); ///< the current layout's step, or pauses it
  void play_on();
  void compare();
  void remember(const QString& file);
  void maximise();
  void restore_settings();
  void save_settings();
  void apply_theme();
  void say(const QString& text);

  std::unique_ptr<QSettings> settings_;
  Session session_;
  CommandRegistry commands_;
  QUndoStack* undo_ = nullptr;
  QStackedWidget* pages_ = nullptr;
  StartPage* start_ = nullptr;
  QSplitter* splitter_ = nullptr;
  QWidget* upper_ = nullptr; ///< filter and table
  QTabWidget* tabs_ = nullptr;
  FilterBar* filter_ = nullptr;
  StudyEditor* editor_ = nullptr;
  DetailsPanel* details_ = nullptr;
  QDockWidget* study_dock_ = nullptr;
  QDockWidget* details_dock_ = nullptr;
  QLabel* counts_ = nullptr;
  QLabel* basis_ = nullptr;
  QLabel* banner_ = nullptr;
  QProgressBar* progress_ = nullptr;
  QPushButton* search_button_ = nullptr;
  std::vector<QToolButton*> tools_;
  QTimer* autosave_ = nullptr;
  QTimer* saying_ = nullptr; ///< while a message stands where the counts are
  Program* importer_ = nullptr;
  QTimer* player_ = nullptr;
  std::map<std::string, View*, std::less<>> views_;
  QString theme_name_ = "system";
  const Theme* theme_ = &light_theme();
  QByteArray usual_layout_;
  double usual_points_ = 0;
  bool applying_theme_ = false;
  bool on_start_page_ = false;
};

/// Registers every command of the window.
void add_commands(MainWindow& window);

} // namespace foretrain::gui
