// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <QWidget>

#include "gui/model/run_timeline.h"
#include "gui/model/runs.h"
#include "gui/plot/theme.h"

class QLabel;
class QPainter;
class QPushButton;
class QTreeWidget;

namespace foretrain::gui {

/// A run's step as promised, above each rank's as measured, on one scale, and between them how much later than promised
/// each op was done. A bar under the pointer says what it is.
class RunTimelines final : public QWidget {
public:
  explicit RunTimelines(QWidget* parent = nullptr);
  void set_theme(const Theme& theme);
  void set_timeline(RunTimeline timeline);
  [[nodiscard]] QSize minimumSizeHint() const override;

protected:
  void paintEvent(QPaintEvent* event) override;
  bool event(QEvent* event) override;

private:
  [[nodiscard]] double label_width() const;
  [[nodiscard]] QRectF row_area(std::size_t lane, std::size_t row) const;
  [[nodiscard]] QRectF lag_area(std::size_t lane) const; ///< between a rank and its forecast
  [[nodiscard]] static std::size_t rows_of(const RunLane& lane);
  [[nodiscard]] static QString lag_title();
  [[nodiscard]] QString text_at(QPoint at) const;
  void paint_lags(QPainter& painter, const RunLane& lane, const QRectF& area, double scale) const;

  const Theme* theme_ = &light_theme();
  RunTimeline timeline_;
};

/// What a calibration learnt from runs would change, before it is taken.
class CalibrationPanel final : public QWidget {
public:
  explicit CalibrationPanel(QWidget* parent = nullptr);
  struct Fit {
    std::int64_t run = 0;
    double measured = 0;
    double before = 0;
    double after = 0;
  };
  void show_change(const QString& device, const std::vector<Fit>& fits, const std::vector<RankChange>& changes,
                   const std::vector<QString>& layouts, const QString& note);
  std::function<void()> accepted;
  std::function<void()> discarded;

private:
  QLabel* title_;
  QTreeWidget* fits_;
  QTreeWidget* ranks_;
  QPushButton* accept_;
  QPushButton* discard_;
};

} // namespace foretrain::gui
