// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <memory>

#include <QApplication>
#include <QElapsedTimer>
#include <QSettings>

#include "gui/app/main_window.h"
#include "tests/gui/fixtures.h"

namespace foretrain::gui::test {

/// A window with settings of its own.
struct Window {
  Folder folder;
  std::unique_ptr<MainWindow> window;
  Window() : window(make()) {}
  std::unique_ptr<MainWindow> make() {
    auto settings =
        std::make_unique<QSettings>(QString::fromStdString((folder / "settings.ini").string()), QSettings::IniFormat);
    Environment here = environment();
    here.user_data = folder / "user";
    auto made = std::make_unique<MainWindow>(std::move(here), std::move(settings));
    made->show();
    QApplication::processEvents();
    return made;
  }
  MainWindow* operator->() const { return window.get(); }
  template <class Condition> bool wait(const Condition& condition) const {
    QElapsedTimer clock;
    clock.start();
    while (clock.elapsed() < 60'000) {
      QApplication::processEvents(QEventLoop::AllEvents, 10);
      if (condition()) return true;
    }
    return false;
  }
};

} // namespace foretrain::gui::test
