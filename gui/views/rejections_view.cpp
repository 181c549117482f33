// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <thread>

#include <QHBoxLayout>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QPainter>
#include <QPushButton>
#include <QSplitter>
#include <QStyledItemDelegate>
#include <QTreeWidget>
#include <QVBoxLayout>

#include "core/base/text.h"
#include "gui/model/numbers.h"
#include "gui/model/why_not.h"
#include "gui/views/all.h"
#include "planner/explain.h"
#include "planner/remedies.h"

namespace foretrain::gui {
namespace {

constexpr int kShareRole = Qt::UserRole + 1;

/// A number on a bar of its share.
class ShareBar final : public QStyledItemDelegate {
public:
  using QStyledItemDelegate::QStyledItemDelegate;
  const Theme* theme = &light_theme();

  void paint(QPainter* painter, const QStyleOptionViewItem& option, const QModelIndex& index) const override {
    if (index.column() == 2) {
      QRect bar = option.rect.adjusted(1, 1, -1, -1);
      bar.setWidth(static_cast<int>(bar.width() * std::clamp(index.data(kShareRole).toDouble(), 0.0, 1.0)));
      painter->fillRect(bar, theme->bar);
    }
    QStyledItemDelegate::paint(painter, option, index);
  }
};

/// What was left out and why: a funnel by rule, and the layouts that missed a rule by the least.
class RejectionsView final : public View {
public:
  explicit RejectionsView(ViewContext context)
      : View(context), splitter_(new QSplitter(Qt::Horizontal, this)), rules_(new QTreeWidget(this)),
        misses_(new QTreeWidget(this)) {
    QVBoxLayout* layout = add_column();
    add_question(layout);
    splitter_->addWidget(rules_);
    splitter_->addWidget(misses_);
    layout->addWidget(splitter_, 1);
    connect(splitter_, &QSplitter::splitterMoved, this, [this] {
      moved_ = true;
      fit_layouts();
    });
    setFocusProxy(rules_);
    rules_->setHeaderLabels({QStringLiteral("Rule or bound"), QStringLiteral("Layouts"), QStringLiteral("Left")});
    rules_->setAccessibleName(QStringLiteral("Layouts left out, by rule"));
    rules_->setRootIsDecorated(false);
    rules_->setItemDelegate(&bars_);
    rules_->header()->setStretchLastSection(false);
    misses_->setHeaderLabels({QStringLiteral("Nearest to fitting"), QStringLiteral("Needs"), QStringLiteral("Has"),
                              QStringLiteral("Over"), QStringLiteral("What would be legal"), QStringLiteral("Why")});
    misses_->setAccessibleName(QStringLiteral("Near misses"));
    misses_->setRootIsDecorated(false);
    misses_->setSelectionMode(QAbstractItemView::ExtendedSelection);
    connect(rules_, &QTreeWidget::itemSelectionChanged, this, [this] { show_misses(); });
    connect(misses_->header(), &QHeaderView::sectionResized, this, [this](int column) {
      if (column == 0 && !fitting_) layouts_by_hand_ = true;
    });
  }

  void set_theme(const Theme& theme) override {
    bars_.theme = &theme;
    View::set_theme(theme);
  }

  [[nodiscard]] std::string csv() override {
    std::string text = "rule,layouts,layout,needed,available,nearest,reason\n";
    const Results& results = session().results();
    for (const auto& [rule, count] : results.rejected) text += csv_text(rule) + "," + std::to_string(count) + ",,,,,\n";
    for (const auto& [rule, count] : results.pruned)
      text += csv_text(rule) + "," + std::to_string(count) + ",,,,,bound\n";
    for (const Miss& miss : results.near_misses)
      text += csv_text(miss.rejection.rule) + ",," + csv_text(describe(miss.layout)) + "," +
              csv_value(miss.rejection.needed) + "," + csv_value(miss.rejection.available) + "," +
              csv_text(join(miss.rejection.nearest, "; ")) + "," + csv_text(miss.rejection.reason) + "\n";
    return text;
  }

protected:
  void resizeEvent(QResizeEvent* event) override {
    View::resizeEvent(event);
    show_rules_whole();
  }

  void refresh(Changes changes) override {
    if ((changes & kRowsChanged) == 0 && changes != kEverything) return;
    const Results& results = session().results();
    if (!asking_) say(QString()); // it was of the results before
    rules_->clear();
    std::int64_t left = results.enumerated;
    const auto add = [&](const QString& name, std::int64_t count, const QString& help, const std::string& id) {
      auto* item = new QTreeWidgetItem(rules_);
      item->setText(0, name);
      if (!id.empty()) item->setText(1, text_of((count > 0 ? "−" : "") + grouped(count)));
      item->setText(2, text_of(grouped(left)));
      for (const int column : {1, 2}) item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
      item->setToolTip(0, help);
      item->setData(0, Qt::UserRole, text_of(id));
      item->setData(2, kShareRole, results.enumerated > 0 ? double(left) / double(results.enumerated) : 0.0);
    };
    if (results.enumerated > 0) add(QStringLiteral("all layouts of the space"), 0, QString(), "");
    std::vector<std::pair<std::int64_t, std::pair<std::string, bool>>> order;
    for (const auto& [rule, count] : results.rejected) order.push_back({count, {rule, false}});
    for (const auto& [rule, count] : results.pruned) order.push_back({count, {rule, true}});
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [count, what] : order) {
      left -= count;
      add(text_of(what.first) + (what.second ? QStringLiteral(" (bound)") : QString()), count,
          what.first == "bound"
              ? QStringLiteral("not evaluated: by their floors they are neither among the best that are kept nor on "
                               "the front of time and memory")
          : what.second ? QStringLiteral("not judged one by one: the bound rules all of them out")
                        : QStringLiteral("refused by this rule"),
          what.first);
    }
    if (results.enumerated > 0) {
      if (const std::int64_t more = left - results.fits; more > 0) {
        left = results.fits;
        add(QStringLiteral("bounds and the study’s filter"), more,
            QStringLiteral("ruled out together: a session file does not keep them apart"), "bounds");
      }
      left = results.fits;
      add(QStringLiteral("fit"), 0, QStringLiteral("legal, in memory, admitted by the study’s filter"), "");
    }
    show_rules_whole();
    show_misses();
  }

private:
  /// Any layout can say why it is not in the table.
  void add_question(QVBoxLayout* column) {
    auto* bar = new QHBoxLayout;
    auto* label = new QLabel(QStringLiteral("Any layout:"), this);
    label->setBuddy(question_);
    question_->setAccessibleName(QStringLiteral("A layout to ask about"));
    question_->setPlaceholderText(
        QStringLiteral("tp 8 pp 4 micro_batch 2 …: what is not named is as in the selected one"));
    question_->setClearButtonEnabled(true);
    connect(question_, &QLineEdit::returnPressed, this, [this] { ask(); });
    connect(ask_, &QPushButton::clicked, this, [this] { ask(); });
    bar->addWidget(label);
    bar->addWidget(question_, 1);
    bar->addWidget(ask_);
    column->addLayout(bar);
    answer_->setWordWrap(true);
    answer_->setTextFormat(Qt::PlainText);
    answer_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
    answer_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    answer_->hide();
    column->addWidget(answer_);
  }

  void say(const QString& text) {
    answer_->setText(text);
    answer_->setVisible(!text.isEmpty());
  }

  void ask() {
    if (asking_) return;
    const Results& results = session().results();
    if (results.enumerated == 0) return say(QStringLiteral("Search first: the question is about this study."));
    const int current = session().current();
    const Layout base = current >= 0 ? session().rows()[static_cast<std::size_t>(current)].layout : Layout();
    if (question_->text().trimmed().isEmpty()) question_->setText(text_of(words_of(base)));
    const auto layout = layout_in_words(question_->text().toStdString(), base, device_count(results.study.cluster));
    if (!layout) return say(text_of(to_string(layout.error())));
    say(QStringLiteral("Predicting it …"));
    ask_->setEnabled(false);
    asking_ = true;
    // The rows stay as they are: another search makes others.
    auto all = session().shared_results();
    thread_ = std::jthread([this, environment = &session().environment(), all, layout = *layout] {
      auto answer = why_not(*environment, *all, layout);
      QMetaObject::invokeMethod(
          this, [this, all, answer = std::move(answer)] { take(*all, answer); }, Qt::QueuedConnection);
    });
  }

  void take(const Results& of, const Result<WhyNot>& answer) {
    asking_ = false;
    ask_->setEnabled(true);
    if (!answer) return say(text_of(to_string(answer.error())));
    say(text_of(join(lines_of(*answer), "\n")));
    if (answer->row >= 0 && &of == &session().results()) session().select({answer->row});
  }

  /// As wide as its counts and names, up to half of the view, until someone moves the handle; names give way to counts.
  void show_rules_whole() {
    if (moved_) return;
    rules_->header()->setSectionResizeMode(0, QHeaderView::Interactive);
    for (int column = 0; column < rules_->columnCount(); ++column) rules_->resizeColumnToContents(column);
    const int wanted =
        rules_->header()->length() + 2 * rules_->frameWidth() + style()->pixelMetric(QStyle::PM_ScrollBarExtent);
    rules_->header()->setSectionResizeMode(0, QHeaderView::Stretch);
    const int own = std::min(wanted, width() / 2);
    splitter_->setSizes({own, std::max(1, width() - own)});
    fit_layouts();
  }

  /// Layouts give way to the figures beside them, down to where they can still be told apart, until someone moves the
  /// edge of their column.
  void fit_layouts() {
    if (layouts_by_hand_) return;
    int beside = 0;
    for (int column = 1; column <= 3; ++column) beside += misses_->columnWidth(column);
    const int unit = fontMetrics().averageCharWidth();
    fitting_ = true;
    misses_->setColumnWidth(0, std::clamp(misses_->viewport()->width() - beside, unit * 22, unit * 58));
    fitting_ = false;
  }

  void show_misses() {
    misses_->clear();
    const QTreeWidgetItem* chosen = rules_->currentItem();
    const std::string rule = chosen ? chosen->data(0, Qt::UserRole).toString().toStdString() : std::string();
    for (const Miss& miss : session().results().near_misses) {
      const Rejection& why = miss.rejection;
      if (!rule.empty() && why.rule != rule) continue;
      auto* item = new QTreeWidgetItem(misses_);
      const bool memory = is_memory(why.rule);
      const auto amount = [memory](double value) { return text_of(memory ? short_bytes(value) : short_number(value)); };
      item->setText(0, text_of(describe(miss.layout)));
      item->setText(1, amount(why.needed));
      item->setText(2, amount(why.available));
      const double over = why.available > 0 ? why.needed / why.available - 1 : 0;
      if (why.available > 0) // below a percent both read alike: the amount says what is missing
        item->setText(3, memory && over < 0.01 ? QStringLiteral("+") + amount(why.needed - why.available)
                                               : text_of(signed_percent(over * 100)));
      item->setText(4, text_of(join(why.nearest, "; ")));
      item->setText(5, text_of(why.reason));
      for (const int column : {1, 2, 3}) item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
      item->setToolTip(0, item->text(0)); // in full where the column is narrow
      for (int column = 1; column < 6; ++column) item->setToolTip(column, text_of(why.rule + ": " + why.reason));
    }
    if (misses_->topLevelItemCount() == 0) {
      auto* item = new QTreeWidgetItem(misses_, {session().results().enumerated == 0
                                                     ? QStringLiteral("No search yet")
                                                     : QStringLiteral("No near misses are kept for this rule")});
      item->setForeground(0, theme().muted);
      item->setFirstColumnSpanned(true);
    }
    for (int column = 1; column < 5; ++column) misses_->resizeColumnToContents(column);
    fit_layouts();
  }

  QLineEdit* question_ = new QLineEdit(this);
  QPushButton* ask_ = new QPushButton(QStringLiteral("Why not?"), this);
  QLabel* answer_ = new QLabel(this);
  bool asking_ = false;
  ShareBar bars_;
  QSplitter* splitter_;
  QTreeWidget* rules_;
  QTreeWidget* misses_;
  bool moved_ = false;           ///< the splitter, by hand
  bool fitting_ = false;         ///< this view sets widths
  bool layouts_by_hand_ = false; ///< their column's width
  std::jthread thread_;          ///< last: it is waited for first
};

} // namespace

std::unique_ptr<View> make_rejections_view(ViewContext context) {
  return std::make_unique<RejectionsView>(context);
}

} // namespace foretrain::gui
