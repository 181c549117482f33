// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/main_window.h"

#include <algorithm>

#include <QApplication>
#include <QCloseEvent>
#include <QDockWidget>
#include <QDragEnterEvent>
#include <QFileInfo>
#include <QLabel>
#include <QMimeData>
#include <QProgressBar>
#include <QPushButton>
#include <QSettings>
#include <QSplitter>
#include <QStackedWidget>
#include <QStatusBar>
#include <QTabWidget>
#include <QTimer>
#include <QToolButton>
#include <QUndoStack>
#include <QVBoxLayout>

#include "gui/app/open_file.h"
#include "gui/app/panels.h"
#include "gui/app/study_editor.h"
#include "gui/model/plan_text.h"
#include "gui/views/program.h"
#include "gui/views/view.h"

namespace foretrain::gui {
namespace {

constexpr int kAutosave = 5000; ///< milliseconds after the last edit
constexpr int kSaid = 8000;     ///< milliseconds that a message stands

QString first_local_file(const QMimeData& data) {
  for (const QUrl& url : data.urls())
    if (url.isLocalFile()) return url.toLocalFile();
  return {};
}

} // namespace

MainWindow::MainWindow(Environment environment, std::unique_ptr<QSettings> settings)
    : settings_(std::move(settings)), session_(std::move(environment)), undo_(new QUndoStack(this)) {
  setObjectName(QStringLiteral("main"));
  setAcceptDrops(true);
  setDockNestingEnabled(true);
  usual_points_ = QApplication::font().pointSizeF();
  session_.set_wake([this] {
    QMetaObject::invokeMethod(
        this, [this] { session_.poll(); }, Qt::QueuedConnection);
  });
  remember_acts();
  autosave_ = new QTimer(this);
  autosave_->setSingleShot(true);
  autosave_->setInterval(kAutosave);
  connect(autosave_, &QTimer::timeout, this, [this] {
    if (!session_.autosave()) autosave_->start();
  });
  saying_ = new QTimer(this);
  saying_->setSingleShot(true);
  connect(saying_, &QTimer::timeout, this, [this] { take_changes(kProgressChanged); });
  importer_ = new Program(this);
  player_ = new QTimer(this);
  player_->setInterval(kFrameMilliseconds);
  connect(player_, &QTimer::timeout, this, [this] { play_on(); });
  add_commands(*this);
  build_center();
  build_docks();
  build_bars();
  build_menus();
  usual_layout_ = saveState(kStateVersion);
  session_.observe([this](Changes changes) { take_changes(changes); });
  restore_settings();
  take_changes(kEverything);
}

MainWindow::~MainWindow() {
  session_.set_wake(nullptr);
  undo_->disconnect(this);
  session_.close();
  // Views and panels stop observing the session when they go; as children they would outlive it.
  delete takeCentralWidget();
  delete study_dock_;
  delete details_dock_;
}

void MainWindow::build_center() {
  pages_ = new QStackedWidget(this);
  start_ = new StartPage(pages_);
  start_->example_chosen = [this](int number) { open_example(number); };
  start_->file_chosen = [this](const QString& file) { open(file); };
  start_->new_chosen = [this] { new_study(); };
  start_->open_chosen = [this] { commands_.run("file.open"); };
  pages_->addWidget(start_);
  splitter_ = new QSplitter(Qt::Vertical, pages_);
  upper_ = new QWidget(splitter_);
  auto* upper = new QVBoxLayout(upper_);
  upper->setContentsMargins(0, 0, 0, 0);
  upper->setSpacing(0);
  banner_ = new QLabel(upper_);
  banner_->setText(QStringLiteral("The study was changed after this search. <a href=\"search\">Search again</a>"));
  banner_->setMargin(4);
  connect(banner_, &QLabel::linkActivated, this, [this] { commands_.run("search.start"); });
  filter_ = new FilterBar(session_, upper_);
  tabs_ = new QTabWidget(splitter_);
  tabs_->setDocumentMode(true);
  tabs_->setUsesScrollButtons(true);
  upper->addWidget(banner_);
  upper->addWidget(filter_);
  for (const ViewEntry& entry : views()) {
    View* view = entry.make({session_, commands_}).release();
    view->setWindowTitle(QString::fromUtf8(entry.title));
    view->setObjectName(QString::fromLatin1(entry.id));
    views_[entry.id] = view;
    if (std::string_view(entry.id) == "table") {
      upper->addWidget(view, 1);
      continue;
    }
    view->setMinimumWidth(fontMetrics().averageCharWidth() * 60); // one wide row of fields must not squeeze the docks
    tabs_->addTab(view, QString::fromUtf8(entry.title));
    tabs_->setTabToolTip(tabs_->count() - 1, QString::fromUtf8(entry.help));
  }
  auto* help = new QToolButton(tabs_);
  help->setText(QStringLiteral("?"));
  help->setAutoRaise(true);
  help->setToolTip(QStringLiteral("What am I looking at?"));
  help->setAccessibleName(QStringLiteral("What am I looking at?"));
  connect(help, &QToolButton::clicked, this, [this] { commands_.run("help.view"); });
  tabs_->setCornerWidget(help);
  splitter_->addWidget(upper_);
  splitter_->addWidget(tabs_);
  splitter_->setStretchFactor(0, 1);
  splitter_->setStretchFactor(1, 1);
  splitter_->setSizes({300, 340});
  pages_->addWidget(splitter_);
  setCentralWidget(pages_);
}

void MainWindow::build_docks() {
  const auto dock = [this](const QString& title, const char* name, QWidget* content, Qt::DockWidgetArea area) {
    auto* widget = new QDockWidget(title, this);
    widget->setObjectName(QString::fromLatin1(name));
    widget->setWidget(content);
    addDockWidget(area, widget);
    return widget;
  };
  editor_ = new StudyEditor(session_, this);
  details_ = new DetailsPanel(session_, this);
  study_dock_ = dock(QStringLiteral("Study"), "study", editor_, Qt::LeftDockWidgetArea);
  details_dock_ = dock(QStringLiteral("Why"), "details", details_, Qt::RightDockWidgetArea);
  const int unit = fontMetrics().averageCharWidth();
  resizeDocks({study_dock_, details_dock_}, {unit * 46, unit * 44}, Qt::Horizontal);
}

void MainWindow::build_bars() {
  counts_ = new QLabel(this);
  basis_ = new QLabel(this);
  progress_ = new QProgressBar(this);
  progress_->setMaximumWidth(fontMetrics().averageCharWidth() * 24);
  progress_->setMaximumHeight(fontMetrics().height());
  progress_->setTextVisible(false);
  progress_->setAccessibleName(QStringLiteral("Progress of the search"));
  counts_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred); // long messages do not widen the window
  statusBar()->addWidget(progress_);
  statusBar()->addWidget(counts_, 1);
  statusBar()->addPermanentWidget(basis_);
}

View* MainWindow::view(std::string_view id) const {
  const auto found = views_.find(id);
  return found == views_.end() ? nullptr : found->second;
}

View* MainWindow::current_view() const {
  View* table = view("table");
  if (table && table->isVisible() && table->isAncestorOf(QApplication::focusWidget())) return table;
  auto* front = static_cast<View*>(tabs_->currentWidget());
  return front ? front : table;
}

void MainWindow::show_view(const std::string& id) {
  View* wanted = view(id);
  if (!wanted) return;
  if (const int tab = tabs_->indexOf(wanted); tab >= 0) {
    tabs_->show();
    tabs_->setCurrentIndex(tab);
  } else {
    upper_->show();
  }
  wanted->setFocus();
}

void MainWindow::take_changes(Changes changes) {
  if ((changes & kSelectionChanged) != 0 && session_.moment() >= 0) session_.set_moment(player_->isActive() ? 0 : -1);
  if ((changes & (kProgressChanged | kRowsChanged | kShownChanged | kStudyChanged | kDetailChanged)) != 0) {
    if (!saying_->isActive() || session_.searching()) counts_->setText(QString::fromStdString(counts_line(session_)));
    const Progress& progress = session_.progress();
    progress_->setVisible(session_.searching());
    progress_->setMaximum(progress.total > 0 ? 1000 : 0);
    if (progress.total > 0)
      progress_->setValue(static_cast<int>(1000.0 * double(progress.done) / double(progress.total)));
    search_button_->setText(session_.searching() ? QStringLiteral("Stop") : QStringLiteral("Search"));
    search_button_->setEnabled(session_.searching() || session_.study().has_value());
    banner_->setVisible(session_.stale());
  }
  if ((changes & kStudyChanged) != 0) {
    const bool any = !session_.edits().document.is_null();
    pages_->setCurrentWidget(any ? static_cast<QWidget*>(splitter_) : start_);
    QStringList problems;
    for (const Problem& problem : session_.problems())
      problems << QString::fromStdString(to_string(Error{{}, problem.message, problem.where, problem.hint}));
    start_->set_problems(problems.join(QLatin1Char('\n')));
    if (any == on_start_page_) { // the start page has no docks beside it
      study_dock_->setVisible(any);
      details_dock_->setVisible(any);
      // Docks that were hidden come back as narrow as they can be: values would not be seen.
      if (any)
        QMetaObject::invokeMethod(
            this, [this] { widen_docks(); }, Qt::QueuedConnection);
      if (any && search_button_->isEnabled()) search_button_->setFocus();
    }
    on_start_page_ = !any;
    const auto& study = session_.study();
    basis_->setText(study ? QString::fromStdString(study->job.semantics + " · " + study->cluster.device.name)
                          : QString());
    basis_->setToolTip(QStringLiteral("semantics of the training framework · device whose calibration is used"));
  }
  if ((changes & (kStudyChanged | kFileChanged)) != 0) update_title();
  if ((changes & (kStudyChanged | kSelectionChanged | kRowsChanged)) != 0) update_tools();
}

void MainWindow::widen_docks() {
  const int unit = fontMetrics().averageCharWidth();
  if (study_dock_->width() < unit * 30) resizeDocks({study_dock_}, {unit * 46}, Qt::Horizontal);
  if (details_dock_->width() < unit * 30) resizeDocks({details_dock_}, {unit * 44}, Qt::Horizontal);
}

void MainWindow::update_title() {
  const auto& study = session_.study();
  QString file = QString::fromStdString(session_.path().filename().string());
  if (file.startsWith(QStringLiteral("untitled-"))) file = QStringLiteral("untitled"); // its name is a date
  if (on_start_page_) file.clear();
  QString title = file.isEmpty() ? QStringLiteral("Foretrain") : file + QStringLiteral(" – Foretrain");
  if (study)
    title = QString::fromStdString(study->model.name + " on " + study->cluster.name) + QStringLiteral(" – ") + title;
  setWindowTitle(title);
}

void MainWindow::save_state() {
  if (const auto saved = session_.save_view_state(); !saved)
    session_.report({saved.error().where, saved.error().message, saved.error().hint});
}

void MainWindow::open(const QString& file) {
  if (const auto known = look_into(file.toStdString()); known && known->kind == FileKind::run)
    return import_runs({file});
  const auto opened = open_any(session_, file.toStdString());
  if (!opened) {
    session_.report({opened.error().where, opened.error().message, opened.error().hint});
    say(QString::fromStdString(to_string(opened.error())));
    return;
  }
  undo_->clear();
  remember(QFileInfo(file).absoluteFilePath());
  say(QStringLiteral("Opened ") + file);
}

void MainWindow::say(const QString& text) {
  // In the place of the counts: QStatusBar's own messages lie over them when they come before the window is shown.
  counts_->setText(text);
  saying_->start(kSaid);
}

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
  const QString file = first_local_file(*event->mimeData());
  if (file.isEmpty()) return;
  const auto known = look_into(file.toStdString());
  say(file + QStringLiteral(" ") +
      QString::fromStdString(known ? what_it_does(known->kind) : to_string(known.error())));
  if (known && known->kind != FileKind::unknown) event->acceptProposedAction();
}

void MainWindow::dropEvent(QDropEvent* event) {
  for (const QUrl& url : event->mimeData()->urls())
    if (url.isLocalFile()) open(url.toLocalFile());
  event->acceptProposedAction();
}

void MainWindow::closeEvent(QCloseEvent* event) {
  save_state();
  if (session_.conflicted() && ask.keep_mine && ask.keep_mine()) (void)session_.keep_mine();
  session_.save_selection();
  save_settings();
  session_.close();
  event->accept();
}

void MainWindow::changeEvent(QEvent* event) {
  QMainWindow::changeEvent(event);
  if (event->type() == QEvent::PaletteChange && theme_name_ == QStringLiteral("system") && !applying_theme_)
    apply_theme();
}

} // namespace foretrain::gui
