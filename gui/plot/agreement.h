// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include "gui/plot/chart.h"

namespace foretrain::gui {

/// One measured figure with its prediction.
struct AgreementPoint {
  double measured = 0;
  double predicted = 0;
  QString title;
  int series = 0;
};

/// Predicted against measured on equal logarithmic axes, with the line of agreement and a band of ten percent.
class AgreementChart final : public Chart {
public:
  explicit AgreementChart(QWidget* parent = nullptr);
  void set_points(std::vector<AgreementPoint> points, const QString& quantity, std::function<QString(double)> text,
                  const QStringList& series, const QString& message_when_empty);

private:
  void paint(QPainter& painter, const Frame& frame) const;
  void paint_card(QPainter& painter, const Frame& frame) const;

  std::vector<AgreementPoint> points_;
  std::function<QString(double)> text_;
  int hover_ = -1;
};

} // namespace foretrain::gui
