// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/plot/theme.h"

#include <algorithm>
#include <cmath>

#include <QAbstractButton>
#include <QApplication>
#include <QPalette>

namespace foretrain::gui {
namespace {

constexpr std::array<QRgb, 8> kOkabeIto = {0xff0072b2, 0xffe69f00, 0xff009e73, 0xffcc79a7,
                                           0xff56b4e9, 0xffd55e00, 0xfff0e442, 0xff8c8c8c};

std::array<QColor, 8> series() {
  std::array<QColor, 8> colors;
  for (std::size_t i = 0; i < colors.size(); ++i) colors[i] = QColor(kOkabeIto[i]);
  return colors;
}

double linear(double channel) {
  return channel <= 0.03928 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4);
}

double luminance(const QColor& color) {
  return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) + 0.0722 * linear(color.blueF());
}

} // namespace

const Theme& light_theme() {
  static const Theme theme = [] {
    Theme t;
    t.window = QColor(0xf3, 0xf4, 0xf6);
    t.base = QColor(0xff, 0xff, 0xff);
    t.raised = QColor(0xe9, 0xeb, 0xef);
    t.text = QColor(0x1b, 0x1f, 0x27);
    t.muted = QColor(0x59, 0x61, 0x6d);
    t.line = QColor(0xb4, 0xba, 0xc4);
    t.grid = QColor(0xe3, 0xe6, 0xea);
    t.accent = QColor(0x00, 0x5f, 0x99);
    t.on_accent = QColor(0xff, 0xff, 0xff);
    t.selected = QColor(0xcf, 0xe4, 0xf5);
    t.hovered = QColor(0xea, 0xf2, 0xf9);
    t.bar = QColor(0xd3, 0xdd, 0xe8);
    t.good = QColor(0x00, 0x6b, 0x4e);
    t.bad = QColor(0xab, 0x3c, 0x00);
    t.warning = QColor(0xff, 0xf1, 0xcf);
    t.series = series();
    return t;
  }();
  return theme;
}

const Theme& dark_theme() {
  static const Theme theme = [] {
    Theme t;
    t.dark = true;
    t.window = QColor(0x1d, 0x20, 0x26);
    t.base = QColor(0x15, 0x17, 0x1c);
    t.raised = QColor(0x2b, 0x30, 0x38);
    t.text = QColor(0xe8, 0xea, 0xee);
    t.muted = QColor(0xa5, 0xad, 0xb9);
    t.line = QColor(0x56, 0x5e, 0x6a);
    t.grid = QColor(0x2b, 0x30, 0x38);
    t.accent = QColor(0x6c, 0xbd, 0xf0);
    t.on_accent = QColor(0x0b, 0x17, 0x20);
    t.selected = QColor(0x1f, 0x45, 0x60);
    t.hovered = QColor(0x24, 0x30, 0x3b);
    t.bar = QColor(0x2c, 0x3d, 0x4f);
    t.good = QColor(0x4f, 0xd0, 0xa6);
    t.bad = QColor(0xff, 0x9a, 0x5c);
    t.warning = QColor(0x4a, 0x3b, 0x14);
    t.series = series();
    t.series[0] = QColor(0x3d, 0x9b, 0xd9); // the dark blue, lifted
    t.series[7] = QColor(0x9a, 0xa2, 0xad);
    return t;
  }();
  return theme;
}

QPalette palette_of(const Theme& t) {
  QPalette palette;
  palette.setColor(QPalette::Window, t.window);
  palette.setColor(QPalette::WindowText, t.text);
  palette.setColor(QPalette::Base, t.base);
  palette.setColor(QPalette::AlternateBase, t.window);
  palette.setColor(QPalette::Text, t.text);
  palette.setColor(QPalette::PlaceholderText, t.muted);
  palette.setColor(QPalette::Button, t.raised);
  palette.setColor(QPalette::ButtonText, t.text);
  palette.setColor(QPalette::BrightText, t.bad);
  palette.setColor(QPalette::ToolTipBase, t.raised);
  palette.setColor(QPalette::ToolTipText, t.text);
  palette.setColor(QPalette::Highlight, t.accent);
  palette.setColor(QPalette::HighlightedText, t.on_accent);
  palette.setColor(QPalette::Link, t.accent);
  palette.setColor(QPalette::Light, mixed(t.raised, t.base, 0.5));
  palette.setColor(QPalette::Midlight, t.raised);
  palette.setColor(QPalette::Mid, t.line);
  palette.setColor(QPalette::Dark, t.line);
  palette.setColor(QPalette::Shadow, t.dark ? Qt::black : t.muted);
  for (const QPalette::ColorRole role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText})
    palette.setColor(QPalette::Disabled, role, mixed(t.muted, t.window, 0.35));
  return palette;
}

void apply_palette(const Theme& theme) {
  const QPalette palette = palette_of(theme);
  QApplication::setPalette(palette);
  // Fusion frames controls with the window's colour, darker by 140: on a dark window there would be no frame.
  QPalette framed = palette;
  if (theme.dark) framed.setColor(QPalette::Window, mixed(theme.line, theme.muted, 0.2).lighter(140));
  for (const char* controls : {"QAbstractButton", "QAbstractSpinBox", "QComboBox", "QLineEdit"})
    QApplication::setPalette(framed, controls);
}

void show_checked(QAbstractButton& button, const Theme& theme) {
  QPalette palette;
  if (button.isChecked()) {
    palette.setColor(QPalette::Button, theme.accent);
    palette.setColor(QPalette::ButtonText, theme.on_accent);
  }
  button.setPalette(palette);
}

QColor color_of(const Theme& theme, TimePart part) {
  switch (part) {
  case TimePart::compute:
    return theme.series[0];
  case TimePart::tp:
    return theme.series[1];
  case TimePart::cp:
    return theme.series[3];
  case TimePart::ep:
    return theme.series[6];
  case TimePart::pp:
    return theme.series[4];
  case TimePart::dp:
    return theme.series[2];
  case TimePart::bubble:
    return theme.series[7];
  case TimePart::optimizer:
    return theme.series[5];
  case TimePart::host:
    return mixed(theme.series[5], theme.text, 0.5);
  case TimePart::other:
    return mixed(theme.series[7], theme.text, 0.4);
  }
  return theme.text;
}

QColor color_of(const Theme& theme, MemoryPart part) {
  switch (part) {
  case MemoryPart::parameters:
    return theme.series[0];
  case MemoryPart::gradients:
    return theme.series[4];
  case MemoryPart::master:
    return theme.series[2];
  case MemoryPart::moments:
    return mixed(theme.series[2], Qt::white, 0.45);
  case MemoryPart::activations:
    return theme.series[1];
  case MemoryPart::logits:
    return theme.series[6];
  case MemoryPart::temporaries:
    return theme.series[5];
  case MemoryPart::buckets:
    return theme.series[3];
  case MemoryPart::communication:
    return mixed(theme.series[3], Qt::black, 0.4);
  case MemoryPart::context:
    return theme.series[7];
  case MemoryPart::fragmentation:
    return mixed(theme.series[7], theme.base, 0.5);
  }
  return theme.text;
}

double contrast(const QColor& a, const QColor& b) {
  const double x = luminance(a);
  const double y = luminance(b);
  return (std::max(x, y) + 0.05) / (std::min(x, y) + 0.05);
}

QColor text_on(const QColor& fill) {
  return contrast(fill, Qt::black) >= contrast(fill, Qt::white) ? Qt::black : Qt::white;
}

QColor mixed(const QColor& a, const QColor& b, double share) {
  const auto between = [share](float x, float y) { return static_cast<float>(x + (y - x) * share); };
  return QColor::fromRgbF(between(a.redF(), b.redF()), between(a.greenF(), b.greenF()), between(a.blueF(), b.blueF()));
}

QColor gradient(const Theme& theme, double share) {
  static const std::array<QColor, 5> stops = {QColor(0x44, 0x01, 0x54), QColor(0x3b, 0x52, 0x8b),
                                              QColor(0x21, 0x90, 0x8c), QColor(0x5d, 0xc9, 0x63),
                                              QColor(0xfd, 0xe7, 0x25)};
  const double clamped = std::clamp(share, 0.0, 1.0);
  const double at = (theme.dark ? 0.35 + 0.65 * clamped : 0.08 + 0.82 * clamped) * 4;
  const auto low = std::min<std::size_t>(static_cast<std::size_t>(at), 3);
  return mixed(stops[low], stops[low + 1], at - double(low));
}

} // namespace foretrain::gui
