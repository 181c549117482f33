// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/filter_header.h"

#include <algorithm>

#include <QLineEdit>
#include <QScrollBar>
#include <QTableView>
#include <QTimer>

namespace foretrain::gui {
namespace {
constexpr int kDebounce = 150; ///< milliseconds
} // namespace

FilterHeader::FilterHeader(QTableView* table) : QHeaderView(Qt::Horizontal, table), timer_(new QTimer(this)) {
  setSectionsClickable(true);
  setHighlightSections(false);
  setSectionsMovable(false);
  setDefaultAlignment(Qt::AlignCenter);
  setContextMenuPolicy(Qt::CustomContextMenu);
  timer_->setSingleShot(true);
  timer_->setInterval(kDebounce);
  connect(timer_, &QTimer::timeout, this, [this] { hand_on(); });
  connect(this, &QHeaderView::sectionResized, this, [this] { place_boxes(); });
  connect(table->horizontalScrollBar(), &QScrollBar::valueChanged, this, [this] { place_boxes(); });
}

void FilterHeader::set_boxes(const std::vector<std::pair<QString, QString>>& columns, const QString& help) {
  while (boxes_.size() > columns.size()) {
    boxes_.back()->deleteLater();
    boxes_.back()->hide();
    boxes_.pop_back();
  }
  while (boxes_.size() < columns.size()) {
    auto* box = new QLineEdit(this);
    const int column = static_cast<int>(boxes_.size());
    connect(box, &QLineEdit::textEdited, this, [this, column] {
      if (std::find(waiting_.begin(), waiting_.end(), column) == waiting_.end()) waiting_.push_back(column);
      timer_->start();
    });
    connect(box, &QLineEdit::returnPressed, this, [this] { hand_on(); });
    box->setWhatsThis(help);
    box->setToolTip(help);
    box->setPlaceholderText(QStringLiteral("filter"));
    box->show();
    boxes_.push_back(box);
  }
  for (std::size_t i = 0; i < boxes_.size(); ++i) {
    boxes_[i]->setAccessibleName(QStringLiteral("Filter of ") + columns[i].first);
    if (!boxes_[i]->hasFocus()) boxes_[i]->setText(columns[i].second);
  }
  place_boxes();
}

void FilterHeader::set_error(int column, const QString& error) {
  if (column < 0 || column >= static_cast<int>(boxes_.size())) return;
  QLineEdit* box = boxes_[static_cast<std::size_t>(column)];
  box->setStyleSheet(error.isEmpty() ? QString()
                                     : QStringLiteral("QLineEdit { border: 1px solid %1; }").arg(error_color_.name()));
  box->setToolTip(error.isEmpty() ? box->whatsThis() : error);
}

void FilterHeader::focus_box(int column) {
  if (column >= 0 && column < static_cast<int>(boxes_.size())) boxes_[static_cast<std::size_t>(column)]->setFocus();
}

void FilterHeader::hand_on() {
  timer_->stop();
  for (const int column : std::exchange(waiting_, {}))
    if (typed && column < static_cast<int>(boxes_.size()))
      typed(column, boxes_[static_cast<std::size_t>(column)]->text().trimmed());
}

QSize FilterHeader::sizeHint() const {
  QSize size = QHeaderView::sizeHint();
  if (!boxes_.empty()) size.setHeight(size.height() + boxes_.front()->sizeHint().height() + 2);
  return size;
}

void FilterHeader::updateGeometries() {
  setViewportMargins(0, 0, 0, boxes_.empty() ? 0 : boxes_.front()->sizeHint().height() + 2);
  QHeaderView::updateGeometries();
  place_boxes();
}

void FilterHeader::place_boxes() {
  const int top = QHeaderView::sizeHint().height();
  for (std::size_t i = 0; i < boxes_.size(); ++i) {
    const int section = static_cast<int>(i);
    if (section >= count()) break;
    boxes_[i]->setGeometry(sectionViewportPosition(section) + 1, top, sectionSize(section) - 2,
                           boxes_[i]->sizeHint().height());
    boxes_[i]->setVisible(!isSectionHidden(section));
  }
}

} // namespace foretrain::gui
