// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/column_chooser.h"

#include <algorithm>

#include <QDialog>
#include <QDialogButtonBox>
#include <QLineEdit>
#include <QListWidget>
#include <QShortcut>
#include <QVBoxLayout>

#include "gui/model/numbers.h"
#include "gui/model/session.h"
#include "gui/views/table_model.h"

namespace foretrain::gui {

void choose_columns(Session& session, QWidget* parent) {
  QDialog dialog(parent);
  dialog.setWindowTitle(QStringLiteral("Columns"));
  auto* layout = new QVBoxLayout(&dialog);
  auto* search = new QLineEdit(&dialog);
  search->setPlaceholderText(QStringLiteral("search"));
  search->setAccessibleName(QStringLiteral("Search columns"));
  auto* list = new QListWidget(&dialog);
  list->setAccessibleName(QStringLiteral("Columns"));
  const std::vector<std::string> chosen = table_columns(session);
  const auto add = [&](const Field& field) {
    auto* item =
        new QListWidgetItem(QString::fromStdString(title_with_unit(field) + "  –  " + std::string(field.help)), list);
    item->setData(Qt::UserRole, QString::fromStdString(std::string(field.id)));
    const bool on = std::find(chosen.begin(), chosen.end(), field.id) != chosen.end();
    item->setCheckState(on ? Qt::Checked : Qt::Unchecked);
  };
  for (const std::string& id : chosen)
    if (const Field* field = find_field(id)) add(*field);
  for (const Field& field : fields())
    if (std::find(chosen.begin(), chosen.end(), field.id) == chosen.end()) add(field);
  list->setDragDropMode(QAbstractItemView::InternalMove); // their order is that of the list
  for (const int by : {-1, 1}) {
    const auto* key = new QShortcut(QKeySequence(by < 0 ? Qt::ALT | Qt::Key_Up : Qt::ALT | Qt::Key_Down), list);
    QObject::connect(key, &QShortcut::activated, list, [list, by] {
      const int row = list->currentRow();
      if (row < 0 || row + by < 0 || row + by >= list->count()) return;
      list->insertItem(row + by, list->takeItem(row));
      list->setCurrentRow(row + by);
    });
  }
  list->setToolTip(QStringLiteral("Drag, or Alt+↑ and Alt+↓, change their order"));
  QObject::connect(search, &QLineEdit::textChanged, list, [list](const QString& text) {
    for (int i = 0; i < list->count(); ++i)
      list->item(i)->setHidden(!list->item(i)->text().contains(text, Qt::CaseInsensitive));
  });
  auto* buttons = new QDialogButtonBox(QDialogButtonBox::Ok | QDialogButtonBox::Cancel, &dialog);
  QObject::connect(buttons, &QDialogButtonBox::accepted, &dialog, &QDialog::accept);
  QObject::connect(buttons, &QDialogButtonBox::rejected, &dialog, &QDialog::reject);
  layout->addWidget(search);
  layout->addWidget(list);
  layout->addWidget(buttons);
  dialog.resize(460, 520);
  if (dialog.exec() != QDialog::Accepted) return;
  std::vector<std::string> columns;
  for (int i = 0; i < list->count(); ++i)
    if (list->item(i)->checkState() == Qt::Checked)
      columns.push_back(list->item(i)->data(Qt::UserRole).toString().toStdString());
  if (!columns.empty()) session.edit("choose columns", [&](Edits& edits) { edits.columns = columns; });
}

} // namespace foretrain::gui
