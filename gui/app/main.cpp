// SPDX-License-Identifier: GPL-3.0-or-later
#include <cstdio>
#include <cstdlib>

#include <QApplication>
#include <QDateTime>
#include <QDir>
#include <QFileDialog>
#include <QFileInfo>
#include <QInputDialog>
#include <QLineEdit>
#include <QMessageBox>
#include <QPushButton>
#include <QSettings>
#include <QStandardPaths>

#include "gui/app/export.h"
#include "gui/app/main_window.h"
#include "gui/app/options.h"
#include "gui/app/places.h"
#include "gui/app/run_export.h"
#include "gui/app/watchdog.h"
#include "gui/views/view.h"

using namespace foretrain;
using namespace foretrain::gui;

namespace {

/// Without a display, Qt remarks on what a display would be needed for.
void keep_quiet(QtMsgType type, const QMessageLogContext& /*context*/, const QString& text) {
  if (type == QtWarningMsg || type == QtInfoMsg || type == QtDebugMsg) return;
  std::fprintf(stderr, "%s\n", qUtf8Printable(text));
}

int complain(const Error& error) {
  std::fprintf(stderr, "foretrain-gui: %s\n", to_string(error).c_str());
  return 1;
}

/// Exports need no display; a window without one cannot be shown.
bool choose_platform(const Options& options) {
  if (std::getenv("QT_QPA_PLATFORM")) return true;
  const bool display = std::getenv("DISPLAY") || std::getenv("WAYLAND_DISPLAY");
  if (!options.export_to.empty() || !display) qputenv("QT_QPA_PLATFORM", "offscreen");
  return display || !options.export_to.empty();
}

/// Where a session without a name is kept until it gets one.
std::string untitled_session() {
  const QString folder = QStandardPaths::writableLocation(QStandardPaths::AppDataLocation);
  if (folder.isEmpty() || !QDir().mkpath(folder)) return {};
  const QString name = folder + QStringLiteral("/untitled-%1.foretrain")
                                    .arg(QDateTime::currentDateTime().toString(QStringLiteral("yyyyMMdd-hhmmss-zzz")));
  return name.toStdString();
}

/// The one session in the folder, when there is exactly one.
QString only_session_here() {
  const QStringList found = QDir::current().entryList({QStringLiteral("*.foretrain")}, QDir::Files);
  return found.size() == 1 ? found.front() : QString();
}

int show_window(QApplication& app, const Options& options, Environment environment) {
  MainWindow window(std::move(environment), std::make_unique<QSettings>());
  window.ask.open = [&window](const QString& title, const QString& filter) {
    return QFileDialog::getOpenFileName(&window, title, QString(), filter);
  };
  window.ask.save = [&window](const QString& title, const QString& name, const QString& filter) {
    QString kind;
    const QString file = QFileDialog::getSaveFileName(&window, title, name, filter, &kind);
    return QString::fromStdString(with_suffix(file.toStdString(), name.toStdString(), kind.toStdString()));
  };
  window.ask.scale = [&window]() -> std::optional<double> {
    bool fine = false;
    const QString chosen =
        QInputDialog::getItem(&window, QStringLiteral("Export"), QStringLiteral("Pixels per point"),
                              {QStringLiteral("1"), QStringLiteral("2"), QStringLiteral("4")}, 1, false, &fine);
    return fine ? std::optional<double>(chosen.toDouble()) : std::nullopt;
  };
  window.ask.text = [&window](const QString& title, const QString& before) -> std::optional<QString> {
    bool fine = false;
    const QString text = QInputDialog::getText(&window, title, title, QLineEdit::Normal, before, &fine);
    return fine ? std::optional<QString>(text) : std::nullopt;
  };
  window.ask.keep_mine = [&window] {
    QMessageBox box(QMessageBox::Question, QStringLiteral("Another window has changed this session"),
                    QStringLiteral("Filters, pins and notes of both cannot be kept in one file."),
                    QMessageBox::NoButton, &window);
    const auto* mine = box.addButton(QStringLiteral("Keep this window's"), QMessageBox::DestructiveRole);
    box.setDefaultButton(box.addButton(QStringLiteral("Keep the other's"), QMessageBox::AcceptRole));
    box.exec();
    return box.clickedButton() == mine;
  };
  if (options.size_given) window.resize(options.width, options.height);
  if (options.theme != "system") window.set_theme(QString::fromStdString(options.theme));
  window.session().set_path(untitled_session());
  QStringList files;
  for (const std::string& file : options.files) files.append(QString::fromStdString(file));
  if (files.isEmpty() && !only_session_here().isEmpty()) files.append(only_session_here());
  for (const QString& file : files) window.open(file);
  if (!options.filter.empty()) {
    if (const auto set = window.session().set_chip({Chip::Kind::expression, "", options.filter}); !set)
      return complain(set.error());
  }
  if (!options.select.empty()) window.session().select_when_read(std::stoi(options.select) - 1);
  if (!options.view.empty()) window.show_view(options.view);
  window.show();
  if (options.reset_layout) window.reset_layout(); // docks have widths only now
  if (options.search) window.commands().run("search.start");
  return app.exec();
}

} // namespace

int main(int argc, char** argv) {
  std::vector<std::string> ids;
  for (const ViewEntry& entry : views()) ids.emplace_back(entry.id);
  int code = 0;
  const auto options = parse_options(argc, argv, program_version(), ids, code);
  if (!options) return code;
  if (!choose_platform(*options))
    return complain({Error::Kind::environment, "there is no display", "DISPLAY", "with --export none is needed"});
  if (!options->export_to.empty()) qInstallMessageHandler(keep_quiet);
  QApplication::setStyle(QString::fromStdString(options->style));
#ifdef NDEBUG
  QApplication app(argc, argv);
#else
  WatchedApplication app(argc, argv);
#endif
  QApplication::setApplicationName(QStringLiteral("foretrain-gui"));
  QApplication::setOrganizationName(QStringLiteral("foretrain"));
  auto environment = find_environment(options->data, options->jobs);
  if (!environment) return complain(environment.error());
  if (options->export_to.empty()) return show_window(app, *options, std::move(*environment));
  const auto exported = run_export(*options, std::move(*environment));
  return exported ? 0 : complain(exported.error());
}
