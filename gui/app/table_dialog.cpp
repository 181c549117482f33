// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/table_dialog.h"

#include <QAbstractTableModel>
#include <QAction>
#include <QClipboard>
#include <QDialog>
#include <QDialogButtonBox>
#include <QGuiApplication>
#include <QHeaderView>
#include <QItemSelectionModel>
#include <QPushButton>
#include <QTableView>
#include <QVBoxLayout>

namespace foretrain::gui {
namespace {

/// The first line holds the titles.
class CsvModel final : public QAbstractTableModel {
public:
  CsvModel(std::vector<std::vector<std::string>> cells, QObject* parent)
      : QAbstractTableModel(parent), cells_(std::move(cells)) {}
  [[nodiscard]] int rowCount(const QModelIndex& parent = {}) const override {
    return parent.isValid() || cells_.empty() ? 0 : static_cast<int>(cells_.size()) - 1;
  }
  [[nodiscard]] int columnCount(const QModelIndex& parent = {}) const override {
    return parent.isValid() || cells_.empty() ? 0 : static_cast<int>(cells_.front().size());
  }
  [[nodiscard]] QVariant data(const QModelIndex& index, int role) const override {
    if (role == Qt::DisplayRole) return text(static_cast<std::size_t>(index.row()) + 1, index.column());
    if (role != Qt::TextAlignmentRole) return {};
    bool number = false;
    (void)text(static_cast<std::size_t>(index.row()) + 1, index.column()).toDouble(&number);
    return QVariant::fromValue<Qt::Alignment>((number ? Qt::AlignRight : Qt::AlignLeft) | Qt::AlignVCenter);
  }
  [[nodiscard]] QVariant headerData(int section, Qt::Orientation orientation, int role) const override {
    if (role != Qt::DisplayRole) return {};
    return orientation == Qt::Horizontal ? QVariant(text(0, section)) : QVariant(section + 1);
  }
  [[nodiscard]] QString text(std::size_t line, int column) const {
    const auto& cells = cells_[line];
    return static_cast<std::size_t>(column) < cells.size()
               ? QString::fromStdString(cells[static_cast<std::size_t>(column)])
               : QString();
  }

private:
  std::vector<std::vector<std::string>> cells_;
};

void copy_cells(const QTableView& table, const CsvModel& model) {
  QString text;
  for (const QItemSelectionRange& range : table.selectionModel()->selection())
    for (int row = range.top(); row <= range.bottom(); ++row)
      for (int column = range.left(); column <= range.right(); ++column)
        text += model.text(static_cast<std::size_t>(row) + 1, column) +
                (column == range.right() ? QLatin1Char('\n') : QLatin1Char('\t'));
  QGuiApplication::clipboard()->setText(text);
}

} // namespace

std::vector<std::vector<std::string>> csv_cells(const std::string& csv) {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string> line;
  std::string cell;
  bool quoted = false;
  for (std::size_t i = 0; i < csv.size(); ++i) {
    const char c = csv[i];
    if (quoted && c == '"' && i + 1 < csv.size() && csv[i + 1] == '"') {
      cell += csv[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      line.push_back(std::exchange(cell, {}));
    } else if (c == '\n' && !quoted) {
      line.push_back(std::exchange(cell, {}));
      lines.push_back(std::exchange(line, {}));
    } else {
      cell += c;
    }
  }
  if (!cell.empty() || !line.empty()) {
    line.push_back(std::move(cell));
    lines.push_back(std::move(line));
  }
  return lines;
}

std::unique_ptr<QDialog> table_dialog(const std::string& title, const std::string& csv, QWidget* parent) {
  auto dialog = std::make_unique<QDialog>(parent);
  dialog->setWindowTitle(QString::fromStdString(title));
  auto* column = new QVBoxLayout(dialog.get());
  auto* table = new QTableView(dialog.get());
  auto* model = new CsvModel(csv_cells(csv), table);
  table->setModel(model);
  table->setAccessibleName(QString::fromStdString(title));
  table->setAlternatingRowColors(true);
  table->setShowGrid(false);
  table->setHorizontalScrollMode(QAbstractItemView::ScrollPerPixel);
  table->verticalHeader()->setDefaultSectionSize(dialog->fontMetrics().height() + 6);
  table->resizeColumnsToContents();
  column->addWidget(table);
  auto* copy = new QAction(QStringLiteral("Copy"), table);
  copy->setShortcut(QKeySequence::Copy);
  copy->setShortcutContext(Qt::WidgetWithChildrenShortcut);
  QObject::connect(copy, &QAction::triggered, table, [table, model] { copy_cells(*table, *model); });
  table->addAction(copy);
  table->setContextMenuPolicy(Qt::ActionsContextMenu);
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Close, dialog.get());
  QPushButton* all = buttons->addButton(QStringLiteral("Copy all"), QDialogButtonBox::ActionRole);
  QObject::connect(all, &QPushButton::clicked, table, [table, model] {
    table->selectAll();
    copy_cells(*table, *model);
  });
  QObject::connect(buttons, &QDialogButtonBox::rejected, dialog.get(), &QDialog::reject);
  column->addWidget(buttons);
  dialog->resize(dialog->fontMetrics().averageCharWidth() * 110, dialog->fontMetrics().height() * 26);
  table->setFocus();
  return dialog;
}

} // namespace foretrain::gui
