// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <array>

#include <QGuiApplication>
#include <QHeaderView>
#include <QItemSelectionModel>
#include <QKeyEvent>
#include <QLabel>
#include <QMenu>
#include <QPainter>
#include <QScrollBar>
#include <QSignalBlocker>
#include <QStyledItemDelegate>
#include <QTableView>
#include <QVBoxLayout>

#include "gui/model/numbers.h"
#include "gui/model/plan_text.h"
#include "gui/views/all.h"
#include "gui/views/column_chooser.h"
#include "gui/views/filter_header.h"
#include "gui/views/table_model.h"

namespace foretrain::gui {
namespace {

constexpr const char* kFilterHelp = "8, >4, <=2, 2~8 (a range), <>x, 1f1b|zb (either), /re/; yes or no";

/// The value, on a bar of its size, with the change against the baseline.
class CellPainter final : public QStyledItemDelegate {
public:
  using QStyledItemDelegate::QStyledItemDelegate;
  const Theme* theme = &light_theme();
  int hover = -1; ///< position

  void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override {
    const bool selected = (option.state & QStyle::State_Selected) != 0;
    const QRect cell = option.rect;
    if (selected)
      painter->fillRect(cell, theme->selected);
    else if (index.row() == hover)
      painter->fillRect(cell, theme->hovered);
    if (const QVariant share = index.data(TableModel::kBarRole); share.isValid()) {
      QRect bar = cell.adjusted(2, cell.height() - 4, -2, -1);
      bar.setWidth(static_cast<int>(bar.width() * std::clamp(share.toDouble(), 0.0, 1.0)));
      painter->fillRect(bar, index.data(TableModel::kBestRole).toBool() ? theme->accent : theme->bar);
    }
    QFont font = option.font;
    font.setBold(index.data(TableModel::kBestRole).toBool());
    painter->setFont(font);
    painter->setPen(theme->text);
    QRect text = cell.adjusted(6, 0, -6, 0);
    const Qt::Alignment alignment = index.data(Qt::TextAlignmentRole).value<Qt::Alignment>();
    if (const QVariant delta = index.data(TableModel::kDeltaRole); delta.isValid()) {
      const QString change = QString::fromStdString(signed_percent(delta.toDouble()));
      painter->setPen(theme->muted);
      painter->drawText(text, Qt::AlignLeft | Qt::AlignVCenter, change);
      painter->setPen(theme->text);
    }
    const QString value = index.data(Qt::DisplayRole).toString();
    painter->drawText(text, alignment, QFontMetrics(font).elidedText(value, Qt::ElideRight, text.width()));
    if ((option.state & QStyle::State_HasFocus) != 0) {
      painter->setPen(QPen(theme->accent, 0));
      painter->drawRect(cell.adjusted(0, 0, -1, -1));
    }
  }
};

class TableView final : public View {
public:
  explicit TableView(ViewContext context)
      : View(context), model_(context.session), table_(new QTableView(this)), header_(new FilterHeader(table_)),
        empty_(new QLabel(table_->viewport())) {
    auto* layout = new QVBoxLayout(this);
    layout->setContentsMargins(0, 0, 0, 0);
    layout->addWidget(table_);
    table_->setHorizontalHeader(header_);
    table_->setModel(&model_);
    table_->setItemDelegate(&painter_);
    table_->setSelectionBehavior(QAbstractItemView::SelectRows);
    table_->setSelectionMode(QAbstractItemView::ExtendedSelection);
    table_->setHorizontalScrollMode(QAbstractItemView::ScrollPerPixel);
    table_->setShowGrid(false);
    table_->setMouseTracking(true);
    table_->setTabKeyNavigation(false);
    table_->setCornerButtonEnabled(false);
    table_->setContextMenuPolicy(Qt::CustomContextMenu);
    table_->setAccessibleName(QStringLiteral("Ranked layouts"));
    setFocusProxy(table_);
    auto* over = new QVBoxLayout(table_->viewport());
    over->addWidget(empty_);
    empty_->setAlignment(Qt::AlignCenter);
    empty_->setWordWrap(true);
    empty_->setAttribute(Qt::WA_TransparentForMouseEvents);
    QHeaderView* rows = table_->verticalHeader();
    rows->setSectionResizeMode(QHeaderView::Fixed);
    rows->setDefaultSectionSize(fontMetrics().height() + 8);
    rows->setMinimumWidth(fontMetrics().horizontalAdvance(QStringLiteral("B ★ 100,000")));
    connect_parts();
  }

  void set_theme(const Theme& theme) override {
    painter_.theme = &theme;
    header_->set_error_color(theme.bad);
    model_.set_theme(theme);
    View::set_theme(theme);
  }

  [[nodiscard]] std::string csv() override { return rows_csv(session(), table_columns(session())); }

  void frame_selection() override { scroll_to_current(); }
  /// "sort", "add-to-sort", "hide", "columns", "reset-columns"; of the column that the keyboard is in.
  void act(std::string_view what) override {
    const int column = std::clamp(table_->currentIndex().column(), 0, model_.columnCount() - 1);
    if (what == "columns") return choose_columns(session(), this);
    if (what == "reset-columns") return reset_columns();
    if (what == "hide") return hide_column(column);
    sort_by(column, what == "add-to-sort");
  }

protected:
  void refresh(Changes changes) override {
    if ((changes & (kRowsChanged | kShownChanged | kColumnsChanged | kStudyChanged)) != 0) {
      const QSignalBlocker blocker(table_->selectionModel());
      const int scroll = table_->verticalScrollBar()->value();
      model_.reload();
      show_boxes();
      if ((changes & (kColumnsChanged | kRowsChanged)) != 0) fit_columns();
      take_selection();
      table_->verticalScrollBar()->setValue(scroll);
    }
    if ((changes & (kRowsChanged | kShownChanged | kProgressChanged | kStudyChanged)) != 0) say_why_empty();
    if ((changes & kPinsChanged) != 0) {
      model_.repaint();
      if (baseline_ != session().baseline()) fit_columns(); // changes against it need room beside the values
      baseline_ = session().baseline();
    }
    if ((changes & kSelectionChanged) != 0) {
      take_selection();
      scroll_to_current();
    }
    if ((changes & kHoverChanged) != 0) {
      painter_.hover = session().hover() < 0 ? -1 : model_.position_of(session().hover());
      table_->viewport()->update();
    }
  }

  bool eventFilter(QObject* object, QEvent* event) override {
    if (event->type() == QEvent::Leave) session().set_hover(-1);
    return View::eventFilter(object, event);
  }

private:
  void connect_parts() {
    connect(table_->selectionModel(), &QItemSelectionModel::selectionChanged, this, [this] { hand_selection_on(); });
    connect(table_, &QTableView::entered, this,
            [this](const QModelIndex& index) { session().set_hover(model_.row_at(index.row())); });
    table_->viewport()->installEventFilter(this);
    connect(table_, &QTableView::customContextMenuRequested, this, [this](QPoint at) {
      static constexpr std::array kMenu = {"row.pin", "row.note",         "row.baseline",   "row.compare",
                                           "-",       "row.copy-command", "row.copy-json",  "row.copy-cells",
                                           "-",       "row.save-plan",    "row.save-trace", "row.export-framework",
                                           "-",       "row.run",          "row.simulate"};
      show_menu(kMenu, table_->viewport()->mapToGlobal(at));
    });
    connect(header_, &QHeaderView::customContextMenuRequested, this, [this](QPoint at) { header_menu(at); });
    connect(header_, &QHeaderView::sectionClicked, this,
            [this](int section) { sort_by(section, (QGuiApplication::keyboardModifiers() & Qt::ShiftModifier) != 0); });
    header_->typed = [this](int column, const QString& text) {
      const auto set = session().set_chip({Chip::Kind::column, std::string(field_at(column).id), text.toStdString()});
      header_->set_error(column,
                         set ? QString() : QString::fromStdString(set.error().message + " " + set.error().hint));
    };
  }

  void say_why_empty() {
    empty_->setVisible(session().shown().empty());
    if (!session().shown().empty()) return;
    const Results& results = session().results();
    empty_->setText(
        !session().rows().empty() ? QStringLiteral("The filters hide all %1 layouts: a click on a chip takes it away")
                                        .arg(text_of(grouped(static_cast<std::int64_t>(session().rows().size()))))
        : session().searching() ? QStringLiteral("Layouts appear here as they are found")
        : session().loading()   ? QStringLiteral("Reading the session …")
        : results.enumerated > 0 ? QStringLiteral("No layout fits. “Left out” says why, and what would be the nearest.")
                                 : QStringLiteral("Press “Search” (Ctrl+R) to rank the layouts of this study"));
    empty_->setForegroundRole(QPalette::PlaceholderText);
  }

  [[nodiscard]] const Field& field_at(int column) const { return *model_.columns()[static_cast<std::size_t>(column)]; }

  void show_boxes() {
    std::vector<std::pair<QString, QString>> boxes;
    for (const Field* field : model_.columns())
      boxes.emplace_back(QString::fromUtf8(field->title.data(), static_cast<qsizetype>(field->title.size())),
                         QString::fromStdString(session().chip_text(Chip::Kind::column, std::string(field->id))));
    header_->set_boxes(boxes, QString::fromLatin1(kFilterHelp));
  }

  void fit_columns() {
    const QFontMetrics metrics(table_->font());
    for (int column = 0; column < model_.columnCount(); ++column) {
      int width =
          metrics.horizontalAdvance(model_.headerData(column, Qt::Horizontal, Qt::DisplayRole).toString() + " ▲");
      const int looked_at = std::min(model_.rowCount(), 200);
      for (int row = 0; row < looked_at; ++row) {
        const QModelIndex cell = model_.index(row, column);
        int text = metrics.horizontalAdvance(cell.data().toString()) + 6;
        if (const QVariant delta = cell.data(TableModel::kDeltaRole); delta.isValid())
          text += metrics.horizontalAdvance(QString::fromStdString(signed_percent(delta.toDouble())) + "  ");
        width = std::max(width, text);
      }
      table_->setColumnWidth(column, std::max(width, metrics.horizontalAdvance("filter") + 6) + 14);
    }
  }

  void take_selection() {
    const QSignalBlocker blocker(table_->selectionModel());
    QItemSelection wanted;
    for (const int row : session().selection()) {
      const int position = model_.position_of(row);
      if (position >= 0) wanted.select(model_.index(position, 0), model_.index(position, model_.columnCount() - 1));
    }
    table_->selectionModel()->select(wanted, QItemSelectionModel::ClearAndSelect);
    const int current = model_.position_of(session().current());
    if (current >= 0)
      table_->selectionModel()->setCurrentIndex(model_.index(current, std::max(0, table_->currentIndex().column())),
                                                QItemSelectionModel::NoUpdate);
    table_->viewport()->update();
  }

  void hand_selection_on() {
    std::vector<int> rows;
    if (table_->currentIndex().isValid() &&
        table_->selectionModel()->isRowSelected(table_->currentIndex().row(), QModelIndex()))
      rows.push_back(model_.row_at(table_->currentIndex().row()));
    for (const QModelIndex& index : table_->selectionModel()->selectedRows()) {
      const int row = model_.row_at(index.row());
      if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
    }
    session().select(std::move(rows));
  }

  void scroll_to_current() {
    const int position = model_.position_of(session().current());
    if (position >= 0) table_->scrollTo(model_.index(position, std::max(0, table_->currentIndex().column())));
  }

  void sort_by(int column, bool add) {
    const std::string id(field_at(column).id);
    const bool large_first = better_direction(field_at(column)) > 0;
    session().edit("sort by " + std::string(field_at(column).title), [&](Edits& edits) {
      const auto at =
          std::find_if(edits.sort.begin(), edits.sort.end(), [&](const SortKey& k) { return k.field == id; });
      SortKey key{id, large_first};
      if (at != edits.sort.end()) {
        key.descending = !at->descending;
        if (key.descending == large_first) { // third click: by rank again
          edits.sort.erase(at);
          return;
        }
        *at = key;
        if (!add) edits.sort = {key};
        return;
      }
      if (!add) edits.sort.clear();
      edits.sort.push_back(key);
    });
  }

  void hide_column(int column) {
    const std::string id(field_at(column).id);
    session().edit("hide column " + id, [&](Edits& edits) {
      edits.columns = table_columns(session());
      if (edits.columns.size() > 1) std::erase(edits.columns, id);
    });
  }
  void reset_columns() {
    session().edit("reset columns", [](Edits& edits) { edits.columns.clear(); });
  }

  void header_menu(QPoint at) {
    const int column = header_->logicalIndexAt(at);
    QMenu menu(this);
    if (column >= 0) {
      connect(menu.addAction(QStringLiteral("Hide")), &QAction::triggered, this,
              [this, column] { hide_column(column); });
      connect(menu.addAction(QStringLiteral("Sort")), &QAction::triggered, this,
              [this, column] { sort_by(column, false); });
    }
    connect(menu.addAction(QStringLiteral("Choose columns…")), &QAction::triggered, this,
            [this] { choose_columns(session(), this); });
    connect(menu.addAction(QStringLiteral("Reset columns")), &QAction::triggered, this, [this] { reset_columns(); });
    menu.exec(header_->mapToGlobal(at));
  }

  TableModel model_;
  CellPainter painter_;
  QTableView* table_;
  FilterHeader* header_;
  QLabel* empty_;
  int baseline_ = -1; ///< that columns leave room for
};

} // namespace

std::unique_ptr<View> make_table_view(ViewContext context) {
  return std::make_unique<TableView>(context);
}

} // namespace foretrain::gui
