// SPDX-License-Identifier: GPL-3.0-or-later
#include <cmath>

#include "gui/plot/chart_parts.h"

namespace foretrain::gui {

bool Chart::key(int code) {
  if (key_pressed && key_pressed(code)) return true;
  const QPointF center = frame().area.center();
  switch (code) {
  case Qt::Key_Left:
    pan(-0.1, 0);
    return true;
  case Qt::Key_Right:
    pan(0.1, 0);
    return true;
  case Qt::Key_Up:
    pan(0, 0.1);
    return true;
  case Qt::Key_Down:
    pan(0, -0.1);
    return true;
  case Qt::Key_Plus:
  case Qt::Key_Equal:
    zoom(0.8, center);
    return true;
  case Qt::Key_Minus:
    zoom(1.25, center);
    return true;
  case Qt::Key_0:
  case Qt::Key_Home:
    fit();
    return true;
  default:
    return false;
  }
}

bool Chart::mouse(QEvent* event) {
  Parts& p = *parts_;
  const auto* mouse_event = static_cast<QMouseEvent*>(event);
  const QPointF at = mouse_event->position();
  switch (static_cast<int>(event->type())) { // far from all of Qt's
  case QEvent::MouseButtonPress:
    if (mouse_event->button() != Qt::LeftButton) return false;
    p.down = true;
    p.moved = false;
    p.press = at;
    p.x_before = p.plot->xAxis->range();
    p.y_before = p.plot->yAxis->range();
    p.taken = pressed && pressed(at, mouse_event->modifiers());
    return true;
  case QEvent::MouseMove:
    if (!p.down) {
      if (hovered) hovered(at);
      return true;
    }
    if ((at - p.press).manhattanLength() > QApplication::startDragDistance() / 2) p.moved = true;
    if (!p.moved) return true;
    if (p.taken) {
      if (dragged) dragged(at);
    } else if (drag_ == Drag::box) {
      p.box = QRectF(p.press, at).normalized();
      redraw_highlights();
    } else {
      p.plot->xAxis->setRange(p.x_before);
      p.plot->yAxis->setRange(p.y_before);
      const QRectF area = frame().area;
      pan(-(at.x() - p.press.x()) / std::max(1.0, area.width()), (at.y() - p.press.y()) / std::max(1.0, area.height()));
    }
    return true;
  case QEvent::MouseButtonRelease: {
    if (!p.down || mouse_event->button() != Qt::LeftButton) return false;
    p.down = false;
    const QRectF box = std::exchange(p.box, QRectF());
    if (p.taken) {
      if (released) released(at);
    } else if (!p.moved) {
      if (clicked) clicked(at, mouse_event->modifiers());
    } else if (drag_ == Drag::box && boxed) {
      boxed(box, mouse_event->modifiers());
    }
    redraw_highlights();
    return true;
  }
  case QEvent::MouseButtonDblClick:
    if (!double_clicked || !double_clicked(at)) fit();
    return true;
  default:
    return false;
  }
}

bool Chart::eventFilter(QObject* object, QEvent* event) {
  switch (static_cast<int>(event->type())) { // far from all of Qt's
  case QEvent::MouseButtonPress:
  case QEvent::MouseMove:
  case QEvent::MouseButtonRelease:
  case QEvent::MouseButtonDblClick:
    return mouse(event);
  case QEvent::Leave:
    if (left) left();
    return false;
  case QEvent::Wheel: {
    const auto* wheel = static_cast<QWheelEvent*>(event);
    const double steps =
        wheel->angleDelta().y() != 0 ? wheel->angleDelta().y() / 120.0 : wheel->angleDelta().x() / 120.0;
    if ((wheel->modifiers() & Qt::ShiftModifier) != 0)
      pan(-0.1 * steps, 0);
    else
      zoom(std::pow(0.85, steps), wheel->position());
    return true;
  }
  case QEvent::KeyPress: {
    const auto* pressed_key = static_cast<QKeyEvent*>(event);
    return (pressed_key->modifiers() & (Qt::ControlModifier | Qt::AltModifier)) == 0 && key(pressed_key->key());
  }
  case QEvent::FocusIn:
  case QEvent::FocusOut: // later: a view that is being deleted loses the focus too
    QMetaObject::invokeMethod(
        this, [this] { redraw_highlights(); }, Qt::QueuedConnection);
    return false;
  case QEvent::Resize:
    redraw();
    return false;
  case QEvent::FontChange:
    apply_theme();
    return false;
  default:
    return QWidget::eventFilter(object, event);
  }
}

} // namespace foretrain::gui
