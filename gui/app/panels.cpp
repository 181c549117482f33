// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/panels.h"

#include <algorithm>

#include <QAbstractItemView>
#include <QCommandLinkButton>
#include <QCompleter>
#include <QCoreApplication>
#include <QFileInfo>
#include <QHBoxLayout>
#include <QInputMethodEvent>
#include <QLabel>
#include <QLineEdit>
#include <QStringListModel>
#include <QTextBrowser>
#include <QTextCharFormat>
#include <QTimer>
#include <QToolButton>
#include <QVBoxLayout>

#include "gui/model/examples.h"
#include "gui/model/numbers.h"
#include "gui/model/plan_text.h"

namespace foretrain::gui {

FilterBar::FilterBar(Session& session, QWidget* parent)
    : QWidget(parent), session_(session), box_(new QLineEdit(this)), error_(new QLabel(this)),
      chips_(new QWidget(this)), chip_layout_(new QHBoxLayout(chips_)), words_(new QStringListModel(this)),
      completer_(new QCompleter(words_, this)), timer_(new QTimer(this)) {
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(4, 4, 4, 2);
  layout->setSpacing(2);
  box_->setPlaceholderText(QStringLiteral("Filter: tp <= 8 and step_time_s < 1.2 s and memory_gib < 70"));
  box_->setAccessibleName(QStringLiteral("Filter expression"));
  box_->setClearButtonEnabled(true);
  box_->setWhatsThis(
      QStringLiteral("Fields compared with numbers, sizes, times and texts; and, or, not, in, parentheses."));
  error_->hide();
  error_->setWordWrap(true);
  error_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred); // a long message must not widen the window
  chip_layout_->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(box_);
  layout->addWidget(error_);
  layout->addWidget(chips_);
  completer_->setWidget(box_);
  completer_->setCompletionMode(QCompleter::UnfilteredPopupCompletion);
  timer_->setSingleShot(true);
  timer_->setInterval(150);
  connect(timer_, &QTimer::timeout, this, [this] { apply(completer_->popup()->isVisible()); });
  connect(box_, &QLineEdit::textEdited, this, [this] {
    timer_->start();
    complete();
  });
  connect(box_, &QLineEdit::textChanged, this, [this](const QString& text) {
    if (text.isEmpty()) timer_->start();
  });
  connect(box_, &QLineEdit::returnPressed, this, [this] { apply(); });
  connect(completer_, qOverload<const QString&>(&QCompleter::activated), this, [this](const QString& word) {
    QString text = box_->text();
    int from = box_->cursorPosition();
    const auto in_word = [](QChar c) { return c.isLetterOrNumber() || c == QLatin1Char('_') || c == QLatin1Char('-'); };
    while (from > 0 && in_word(text[from - 1])) --from;
    text.replace(from, box_->cursorPosition() - from, word);
    box_->setText(text);
    box_->setCursorPosition(from + static_cast<int>(word.size()));
    timer_->start();
  });
  observer_ = session_.observe([this](Changes changes) {
    if ((changes & (kShownChanged | kRowsChanged | kStudyChanged)) != 0) show_chips();
  });
  show_chips();
}

FilterBar::~FilterBar() {
  session_.forget(observer_);
}

void FilterBar::set_theme(const Theme& theme) {
  theme_ = &theme;
  error_->setStyleSheet(QStringLiteral("color: %1").arg(theme.bad.name()));
  show_chips();
}

void FilterBar::focus_box() {
  box_->setFocus();
  box_->selectAll();
}

void FilterBar::apply(bool still_typing) {
  timer_->stop();
  const auto set = session_.set_chip({Chip::Kind::expression, "", box_->text().trimmed().toStdString()});
  const bool fine = set || still_typing; // half a name, whose ends are being offered, is no mistake yet
  error_->setVisible(!fine);
  underline(fine ? QString() : QString::fromStdString(set.error().where));
  box_->setStyleSheet(fine ? QString() : QStringLiteral("QLineEdit { border: 1px solid %1; }").arg(theme_->bad.name()));
  if (fine) return;
  const QString why = QString::fromStdString(to_string(set.error()));
  error_->setToolTip(why);
  error_->setText(fontMetrics().elidedText(why, Qt::ElideRight, std::max(300, width() * 3 / 2)) +
                  QStringLiteral(" – the filter before still holds"));
}

void FilterBar::underline(const QString& place) {
  // Formats of a line edit go through its input method.
  QList<QInputMethodEvent::Attribute> attributes;
  const QString word = QStringLiteral("column ");
  if (const qsizetype at = place.lastIndexOf(word); at >= 0) {
    const int column = place.mid(at + word.size()).toInt();
    const int length = static_cast<int>(box_->text().size());
    const int from = std::clamp(column - 1, 0, std::max(0, length - 1));
    int to = from + 1;
    while (to < length && !box_->text()[to].isSpace()) ++to;
    QTextCharFormat format;
    format.setUnderlineStyle(QTextCharFormat::WaveUnderline);
    format.setUnderlineColor(theme_->bad);
    attributes.append({QInputMethodEvent::TextFormat, from - box_->cursorPosition(), to - from, format});
  }
  QInputMethodEvent event(QString(), attributes);
  QCoreApplication::sendEvent(box_, &event);
}

void FilterBar::complete() {
  QStringList words;
  for (const std::string& word :
       completions(box_->text().toStdString(), static_cast<std::size_t>(box_->cursorPosition())))
    words.append(QString::fromStdString(word));
  const QString before = box_->text().left(box_->cursorPosition());
  const bool in_word = !before.isEmpty() && before.back().isLetter();
  if (words.isEmpty() || !in_word || (words.size() == 1 && before.endsWith(words.front()))) {
    completer_->popup()->hide();
    return;
  }
  words_->setStringList(words);
  completer_->complete();
}

void FilterBar::show_chips() {
  if (!box_->hasFocus()) {
    const QString text = QString::fromStdString(session_.chip_text(Chip::Kind::expression, ""));
    if (text != box_->text() && !error_->isVisible()) box_->setText(text);
    timer_->stop();
  }
  while (QLayoutItem* item = chip_layout_->takeAt(0)) {
    if (item->widget()) item->widget()->hide();
    if (item->widget()) item->widget()->deleteLater();
    delete item;
  }
  const auto& chips = session_.edits().chips;
  for (std::size_t i = 0; i < chips.size(); ++i) {
    auto* chip = new QToolButton(chips_);
    const int hidden = session_.hidden_by(chips[i]);
    QString title = QString::fromStdString(chip_title(chips[i]));
    chip->setText(fontMetrics().elidedText(title, Qt::ElideMiddle, 320) +
                  QStringLiteral("  −%1  ✕").arg(QString::fromStdString(grouped(hidden))));
    chip->setToolTip(QStringLiteral("%1\nhides %2 layouts; a click takes it away").arg(title).arg(hidden));
    chip->setAccessibleName(QStringLiteral("Remove filter ") + title);
    chip->setStyleSheet(
        QStringLiteral("QToolButton { background: %1; color: %2; border: 1px solid %3; border-radius: 3px; "
                       "padding: 1px 6px; }")
            .arg(theme_->raised.name(), theme_->text.name(), theme_->line.name()));
    connect(chip, &QToolButton::clicked, this, [this, i] { session_.remove_chip(i); });
    chip_layout_->addWidget(chip);
  }
  chip_layout_->addStretch(1);
  chips_->setVisible(!chips.empty());
}

DetailsPanel::DetailsPanel(Session& session, QWidget* parent)
    : QWidget(parent), session_(session), text_(new QTextBrowser(this)) {
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(4, 4, 4, 4);
  layout->addWidget(text_);
  text_->setOpenLinks(false);
  text_->setAccessibleName(QStringLiteral("Why this layout"));
  observer_ = session_.observe([this](Changes changes) {
    if ((changes & (kSelectionChanged | kRowsChanged | kDetailChanged | kPinsChanged)) != 0) refresh();
  });
  refresh();
}

DetailsPanel::~DetailsPanel() {
  session_.forget(observer_);
}

void DetailsPanel::set_theme(const Theme& theme) {
  theme_ = &theme;
  refresh();
}

void DetailsPanel::refresh() {
  const auto lines = detail_lines(session_, session_.current());
  const QString muted = theme_->muted.name();
  if (lines.empty())
    return text_->setHtml(
        QStringLiteral("<p style='color:%1'>Select a layout to see why it ranks where it does.</p>").arg(muted));
  QString html = QStringLiteral("<table width='100%' cellspacing='0' cellpadding='2'>");
  for (const DetailLine& line : lines) {
    const QString name = QString::fromStdString(line.name).toHtmlEscaped();
    const QString value = QString::fromStdString(line.value).toHtmlEscaped();
    if (line.value.empty())
      html += QStringLiteral("<tr><td colspan='2' bgcolor='%1'><b>%2</b></td></tr>").arg(theme_->raised.name(), name);
    else if (line.name == "layout" || line.name == "note" || line.name.empty())
      html += QStringLiteral("<tr><td colspan='2'>%1</td></tr>").arg(value);
    else
      html += QStringLiteral("<tr><td style='color:%1'>%2</td><td align='right'>%3</td></tr>").arg(muted, name, value);
  }
  text_->setHtml(html + QStringLiteral("</table>"));
}

StartPage::StartPage(QWidget* parent) : QWidget(parent), recent_(new QWidget(this)), problems_(new QLabel(this)) {
  auto* outer = new QHBoxLayout(this);
  auto* column = new QWidget(this);
  column->setMaximumWidth(fontMetrics().averageCharWidth() * 90);
  auto* layout = new QVBoxLayout(column);
  outer->addStretch(1);
  outer->addWidget(column, 6);
  outer->addStretch(1);
  const auto label = [&](const QString& text, double size, bool bold) {
    auto* line = new QLabel(text, column);
    QFont font = line->font();
    font.setPointSizeF(font.pointSizeF() * size);
    font.setBold(bold);
    line->setFont(font);
    line->setWordWrap(true);
    layout->addWidget(line);
  };
  layout->addStretch(1);
  label(QStringLiteral("Foretrain"), 2.0, true);
  label(QStringLiteral("Which parallel layout trains this model fastest on that cluster, what fits, and why. "
                       "Choose an example, then press “Search”."),
        1.1, false);
  layout->addSpacing(8);
  int number = 0;
  for (const Example& example : examples()) {
    auto* button = new QCommandLinkButton(QString::fromUtf8(example.title), QString::fromUtf8(example.text), column);
    button->setAccessibleName(QString::fromUtf8(example.title));
    connect(button, &QAbstractButton::clicked, this, [this, number] { example_chosen(number); });
    layout->addWidget(button);
    ++number;
  }
  layout->addSpacing(8);
  auto* fresh = new QCommandLinkButton(QStringLiteral("New study"),
                                       QStringLiteral("Your model, your cluster, your job."), column);
  connect(fresh, &QAbstractButton::clicked, this, [this] { new_chosen(); });
  layout->addWidget(fresh);
  auto* open = new QCommandLinkButton(
      QStringLiteral("Open a file"),
      QStringLiteral("A session, a study.json, or a Hugging Face config.json; or drop it here."), column);
  connect(open, &QAbstractButton::clicked, this, [this] { open_chosen(); });
  layout->addWidget(open);
  new QVBoxLayout(recent_);
  layout->addWidget(recent_);
  problems_->setWordWrap(true);
  problems_->setForegroundRole(QPalette::BrightText);
  problems_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  problems_->setAccessibleName(QStringLiteral("Problems"));
  problems_->hide();
  layout->addWidget(problems_);
  layout->addStretch(2);
  label(QStringLiteral("Nothing leaves this computer: no network, no account, no telemetry."), 0.9, false);
}

void StartPage::set_problems(const QString& text) {
  problems_->setText(text);
  problems_->setVisible(!text.isEmpty());
}

void StartPage::set_recent(const QStringList& files) {
  while (QLayoutItem* item = recent_->layout()->takeAt(0)) {
    if (item->widget()) item->widget()->hide();
    if (item->widget()) item->widget()->deleteLater();
    delete item;
  }
  for (const QString& file : files) {
    auto* button = new QToolButton(recent_);
    button->setText(QStringLiteral("Recent: ") + QFileInfo(file).fileName());
    button->setToolTip(file);
    button->setAutoRaise(true);
    connect(button, &QToolButton::clicked, this, [this, file] { file_chosen(file); });
    recent_->layout()->addWidget(button);
  }
}

} // namespace foretrain::gui
