// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/study_editor.h"

#include <QComboBox>
#include <QCompleter>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QStyledItemDelegate>
#include <QTreeWidget>
#include <QVBoxLayout>

#include "gui/model/study_form.h"

namespace foretrain::gui {
namespace {

constexpr int kFieldRole = Qt::UserRole;

/// A list of choices where there is one, a line elsewhere; only values can be edited.
class ValueEditor final : public QStyledItemDelegate {
public:
  explicit ValueEditor(const std::vector<FormField>& fields, QObject* parent)
      : QStyledItemDelegate(parent), fields_(fields) {}

  QWidget* createEditor(QWidget* parent, const QStyleOptionViewItem& option, const QModelIndex& index) const override {
    if (index.column() != 1) return nullptr;
    const int at = index.siblingAtColumn(0).data(kFieldRole).toInt();
    const FormField& field = fields_[static_cast<std::size_t>(at)];
    if (field.kind == FormField::Kind::section) return nullptr;
    std::vector<std::string> choices = field.choices;
    if (field.kind == FormField::Kind::flag) choices = {"yes", "no"};
    if (choices.empty() || field.kind == FormField::Kind::list)
      return QStyledItemDelegate::createEditor(parent, option, index);
    auto* box = new QComboBox(parent);
    box->setEditable(choices.size() > 12);
    for (const std::string& choice : choices) box->addItem(QString::fromStdString(choice));
    if (box->isEditable()) box->completer()->setFilterMode(Qt::MatchContains);
    QObject::connect(box, &QComboBox::activated, this, [this, box] {
      auto* self = const_cast<ValueEditor*>(this);
      Q_EMIT self->commitData(box);
      Q_EMIT self->closeEditor(box);
    });
    return box;
  }
  void setEditorData(QWidget* editor, const QModelIndex& index) const override {
    if (auto* box = qobject_cast<QComboBox*>(editor))
      box->setCurrentText(index.data(Qt::EditRole).toString());
    else
      QStyledItemDelegate::setEditorData(editor, index);
  }
  void setModelData(QWidget* editor, QAbstractItemModel* model, const QModelIndex& index) const override {
    if (auto* box = qobject_cast<QComboBox*>(editor))
      model->setData(index, box->currentText(), Qt::EditRole);
    else
      QStyledItemDelegate::setModelData(editor, model, index);
  }

private:
  const std::vector<FormField>& fields_;
};

QString help_of(const FormField& field) {
  QString help = QString::fromStdString(field.help);
  const auto line = [&help](const QString& name, const std::string& text) {
    if (!text.empty()) help += QStringLiteral("\n") + name + QString::fromStdString(text);
  };
  line(QStringLiteral("Range: "), field.range);
  line(QStringLiteral("Such as: "), field.example);
  line(QStringLiteral("Default: "), field.inherited);
  if (field.kind == FormField::Kind::list)
    help += QStringLiteral("\nA list: 1, 2, 4. Empty: every value that is possible.");
  return help.trimmed();
}

} // namespace

StudyEditor::StudyEditor(Session& session, QWidget* parent)
    : QWidget(parent), session_(session), search_(new QLineEdit(this)), tree_(new QTreeWidget(this)),
      heading_(new QLabel(this)), problems_(new QListWidget(this)) {
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(4, 4, 4, 4);
  search_->setPlaceholderText(QStringLiteral("Find a field"));
  search_->setAccessibleName(QStringLiteral("Find a field of the study"));
  search_->setClearButtonEnabled(true);
  tree_->setColumnCount(2);
  tree_->setHeaderLabels({QStringLiteral("Field"), QStringLiteral("Value")});
  tree_->setAccessibleName(QStringLiteral("Study"));
  tree_->setAlternatingRowColors(true);
  tree_->setEditTriggers(QAbstractItemView::DoubleClicked | QAbstractItemView::EditKeyPressed |
                         QAbstractItemView::SelectedClicked | QAbstractItemView::AnyKeyPressed);
  tree_->setItemDelegate(new ValueEditor(fields_, tree_));
  tree_->header()->setSectionResizeMode(0, QHeaderView::ResizeToContents);
  tree_->setIndentation(12);
  tree_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  problems_->setAccessibleName(QStringLiteral("Problems"));
  problems_->setWordWrap(true);
  layout->addWidget(search_);
  layout->addWidget(tree_, 1);
  layout->addWidget(heading_);
  layout->addWidget(problems_);
  connect(search_, &QLineEdit::textChanged, this, [this](const QString& text) { filter(text); });
  connect(tree_, &QTreeWidget::itemChanged, this, [this](QTreeWidgetItem* item) { take(item); });
  connect(problems_, &QListWidget::itemActivated, this,
          [this](QListWidgetItem* item) { go_to(item->data(Qt::UserRole).toString()); });
  connect(problems_, &QListWidget::itemClicked, this,
          [this](QListWidgetItem* item) { go_to(item->data(Qt::UserRole).toString()); });
  observer_ = session_.observe([this](Changes changes) {
    if ((changes & kStudyChanged) == 0) return;
    // Rebuilding while an editor closes would delete the item it writes to.
    QMetaObject::invokeMethod(
        this, [this] { rebuild(); }, Qt::QueuedConnection);
  });
  rebuild();
}

StudyEditor::~StudyEditor() {
  session_.forget(observer_);
}

void StudyEditor::set_theme(const Theme& theme) {
  theme_ = &theme;
  rebuild();
}

void StudyEditor::focus_search() {
  search_->setFocus();
}

void StudyEditor::rebuild() {
  filling_ = true;
  const QString current = tree_->currentItem() ? tree_->currentItem()->text(0) : QString();
  tree_->clear();
  fields_ = session_.edits().document.is_null() ? std::vector<FormField>()
                                                : study_form(session_.edits().document, session_.environment().data);
  std::vector<QTreeWidgetItem*> parents;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const FormField& field = fields_[i];
    parents.resize(std::min(parents.size(), static_cast<std::size_t>(field.depth)));
    QTreeWidgetItem* item = parents.empty() ? new QTreeWidgetItem(tree_) : new QTreeWidgetItem(parents.back());
    item->setText(0, QString::fromStdString(field.key));
    item->setData(0, kFieldRole, static_cast<int>(i));
    item->setToolTip(0, help_of(field));
    item->setToolTip(1, help_of(field));
    if (field.kind == FormField::Kind::section) {
      QFont bold = font();
      bold.setBold(true);
      item->setFont(0, bold);
      parents.push_back(item);
      continue;
    }
    item->setFlags(item->flags() | Qt::ItemIsEditable);
    item->setText(1, QString::fromStdString(field.value.value_or(field.inherited)));
    if (!field.value) item->setForeground(1, theme_->muted);
    if (item->text(0) == current) tree_->setCurrentItem(item);
  }
  constexpr int kLong = 16; // what a preset gave, written out, starts closed
  for (int i = 0; i < tree_->topLevelItemCount(); ++i) {
    QTreeWidgetItem* item = tree_->topLevelItem(i);
    const QString name = item->text(0);
    item->setExpanded(name == QStringLiteral("job") ||
                      (item->childCount() <= kLong && name != QStringLiteral("space")));
  }
  filling_ = false;
  filter(search_->text());
  show_problems();
}

void StudyEditor::show_problems() {
  problems_->clear();
  const bool any = !session_.problems().empty();
  heading_->setText(any                                   ? QStringLiteral("Problems")
                    : session_.edits().document.is_null() ? QStringLiteral("No study is open")
                                                          : QStringLiteral("No problems"));
  problems_->setVisible(any);
  problems_->setMaximumHeight(fontMetrics().height() * 8);
  for (const Problem& problem : session_.problems()) {
    std::string text = problem.where + (problem.where.empty() ? "" : ": ") + problem.message;
    if (!problem.hint.empty()) text += "\n" + problem.hint;
    auto* item = new QListWidgetItem(QString::fromStdString(text), problems_);
    item->setForeground(theme_->bad);
    item->setData(Qt::UserRole, QString::fromStdString(problem.where));
  }
}

void StudyEditor::take(QTreeWidgetItem* item) {
  if (filling_) return;
  const FormField field = fields_[static_cast<std::size_t>(item->data(0, kFieldRole).toInt())];
  const std::string text = item->text(1).trimmed().toStdString();
  if (text == field.value.value_or(field.inherited)) return;
  session_.edit("set " + field.key + (text.empty() ? " to its default" : " " + text),
                [&](Edits& edits) { edits.document = with_value(edits.document, field, text); });
}

void StudyEditor::filter(const QString& text) {
  const std::function<bool(QTreeWidgetItem*)> show = [&](QTreeWidgetItem* item) {
    bool any = item->text(0).contains(text, Qt::CaseInsensitive);
    for (int i = 0; i < item->childCount(); ++i) any = show(item->child(i)) || any;
    item->setHidden(!any);
    if (any && !text.isEmpty()) item->setExpanded(true);
    return any;
  };
  for (int i = 0; i < tree_->topLevelItemCount(); ++i) show(tree_->topLevelItem(i));
}

void StudyEditor::go_to(const QString& where) {
  const QString pointer = where.mid(where.indexOf(QLatin1Char('/')));
  QTreeWidgetItem* best = nullptr;
  qsizetype longest = 0;
  const std::function<void(QTreeWidgetItem*)> look = [&](QTreeWidgetItem* item) {
    const QString mine =
        QString::fromStdString(fields_[static_cast<std::size_t>(item->data(0, kFieldRole).toInt())].pointer);
    if (!mine.isEmpty() && pointer.startsWith(mine) && mine.size() > longest) {
      longest = mine.size();
      best = item;
    }
    for (int i = 0; i < item->childCount(); ++i) look(item->child(i));
  };
  for (int i = 0; i < tree_->topLevelItemCount(); ++i) look(tree_->topLevelItem(i));
  if (!best) return;
  for (QTreeWidgetItem* parent = best->parent(); parent; parent = parent->parent()) parent->setExpanded(true);
  tree_->setCurrentItem(best, 1);
  tree_->setFocus();
}

} // namespace foretrain::gui
