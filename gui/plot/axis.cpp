// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/plot/axis.h"

#include <cmath>

#include <qcustomplot.h>

namespace foretrain::gui {
namespace {

class PaintedLayer final : public QCPLayerable {
public:
  PaintedLayer(QCustomPlot* plot, const QString& layer, std::function<void(QPainter&)> paint)
      : QCPLayerable(plot, layer), paint_(std::move(paint)) {}

protected:
  void applyDefaultAntialiasingHint(QCPPainter* painter) const override { painter->setAntialiasing(true); }
  void draw(QCPPainter* painter) override { paint_(*painter); }
  QRect clipRect() const override { return mParentPlot->viewport(); }

private:
  std::function<void(QPainter&)> paint_;
};

class FixedTicker final : public QCPAxisTicker {
public:
  explicit FixedTicker(std::vector<std::pair<double, QString>> ticks) : ticks_(std::move(ticks)) {}

protected:
  void generate(const QCPRange& range, const QLocale&, QChar, int, QVector<double>& ticks, QVector<double>* sub,
                QVector<QString>* labels) override {
    ticks.clear();
    if (sub) sub->clear();
    if (labels) labels->clear();
    for (const auto& [value, text] : ticks_) {
      if (!range.contains(value)) continue;
      ticks.append(value);
      if (labels) labels->append(text);
    }
  }

private:
  std::vector<std::pair<double, QString>> ticks_;
};

template <class Base> class TextTicker final : public Base {
public:
  explicit TextTicker(std::function<QString(double)> text) : text_(std::move(text)) {}

protected:
  QString getTickLabel(double tick, const QLocale&, QChar, int) override { return text_(tick); }

private:
  std::function<QString(double)> text_;
};

QString plain_number(double value) {
  return QString::number(std::abs(value) < 1e-12 ? 0 : value, 'g', 6);
}

} // namespace

void add_painting(QCustomPlot& plot, const char* layer, std::function<void(QPainter&)> paint) {
  new PaintedLayer(&plot, QString::fromLatin1(layer), std::move(paint));
}

void apply_look(QCPAxis& axis, const AxisLook& look) {
  axis.setLabel(look.title);
  axis.setRangeReversed(look.reversed);
  axis.setVisible(look.visible);
  axis.setScaleType(look.log ? QCPAxis::stLogarithmic : QCPAxis::stLinear);
  const auto text = look.text ? look.text : std::function<QString(double)>(plain_number);
  QSharedPointer<QCPAxisTicker> ticker;
  if (!look.ticks.empty())
    ticker.reset(new FixedTicker(look.ticks));
  else if (look.log)
    ticker.reset(new TextTicker<QCPAxisTickerLog>(text));
  else
    ticker.reset(new TextTicker<QCPAxisTicker>(text));
  axis.setTicker(ticker);
  axis.setSubTicks(look.ticks.empty());
}

} // namespace foretrain::gui
