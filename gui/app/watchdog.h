// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdio>

#include <QApplication>
#include <QElapsedTimer>
#include <QEvent>

namespace foretrain::gui {

/// Says on stderr when an event holds up the window for longer than a person notices; for debug builds.
class WatchedApplication final : public QApplication {
public:
  using QApplication::QApplication;
  bool notify(QObject* receiver, QEvent* event) override {
    if (++depth_ > 1) { // a dialog's own loop, or an event within one: the outer one counts it
      const bool done = QApplication::notify(receiver, event);
      --depth_;
      return done;
    }
    QElapsedTimer clock;
    clock.start();
    const int type = event->type();
    const bool done = QApplication::notify(receiver, event);
    --depth_;
    if (clock.elapsed() > kNoticed && !activeModalWidget())
      std::fprintf(stderr, "foretrain-gui: an event of type %d held up the window for %lld ms\n", type,
                   static_cast<long long>(clock.elapsed()));
    return done;
  }

private:
  static constexpr int kNoticed = 100; ///< milliseconds
  int depth_ = 0;
};

} // namespace foretrain::gui
