// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <array>
#include <cmath>

#include <QComboBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QPainter>
#include <QSlider>
#include <QToolButton>
#include <QVBoxLayout>

#include "core/program/ranks.h"
#include "gui/model/commands.h"
#include "gui/model/numbers.h"
#include "gui/model/traffic.h"
#include "gui/plot/chart.h"
#include "gui/views/all.h"

namespace foretrain::gui {
namespace {

constexpr int kMostNodes = 128; ///< drawn; the others are counted
constexpr int kMoments = 1000;  ///< steps of the slider
constexpr std::array kAxes = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};
constexpr std::array kAxisNames = {"tp", "cp", "dp", "pp"};
constexpr std::array kGroupsShown = {Group::tp, Group::cp, Group::data, Group::pp, Group::ep};
constexpr std::array kGroupNames = {"tensor parallel", "context parallel", "data parallel", "pipeline",
                                    "expert parallel"};

/// The cluster as boxes in boxes, a device a cell, coloured by its place on an axis; a click shows its groups.
class TopologyView final : public View {
public:
  explicit TopologyView(ViewContext context)
      : View(context), color_(new QComboBox(this)), play_(new QToolButton(this)),
        moment_(new QSlider(Qt::Horizontal, this)), load_(new QLabel(this)), text_(new QLabel(this)) {
    QVBoxLayout* layout = add_column();
    auto* bar = new QHBoxLayout;
    auto* label = new QLabel(QStringLiteral("colour by"), this);
    label->setBuddy(color_);
    for (const char* name : kAxisNames) color_->addItem(QString::fromLatin1(name));
    color_->setCurrentIndex(3);
    color_->setAccessibleName(QStringLiteral("Colour by"));
    bar->addWidget(label);
    bar->addWidget(color_);
    bar->addWidget(text_, 1);
    layout->addLayout(bar);
    auto* player = new QHBoxLayout;
    play_->setText(QStringLiteral("▶ step"));
    play_->setToolTip(QStringLiteral("Plays the step here and in the timeline (P)"));
    play_->setAccessibleName(QStringLiteral("Play the step"));
    connect(play_, &QToolButton::clicked, this, [this] { commands().run("step.play"); });
    moment_->setRange(0, kMoments);
    moment_->setAccessibleName(QStringLiteral("Moment in the step"));
    moment_->setMaximumWidth(fontMetrics().averageCharWidth() * 40);
    connect(moment_, &QSlider::sliderMoved, this,
            [this](int at) { session().set_moment(traffic_.end() * at / kMoments); });
    connect(moment_, &QSlider::actionTriggered, this,
            [this](int) { session().set_moment(traffic_.end() * moment_->sliderPosition() / kMoments); });
    player->addWidget(play_);
    player->addWidget(moment_);
    for (QLabel* line : {load_, text_}) line->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    player->addWidget(load_, 1);
    layout->addLayout(player);
    chart_ = add_chart(layout, QStringLiteral("Cluster and groups"));
    chart_->paint_marks = [this](QPainter& p, const Frame& f) { paint_devices(p, f); };
    chart_->paint_highlights = [this](QPainter& p, const Frame& f) { paint_groups(p, f); };
    connect(color_, &QComboBox::currentIndexChanged, this, [this] { chart_->redraw(); });
    chart_->clicked = [this](QPointF at, Qt::KeyboardModifiers) {
      rank_ = rank_at(at);
      show_text();
      chart_->redraw_highlights();
    };
    chart_->key_pressed = [this](int key) {
      const int by = key == Qt::Key_Left    ? -1
                     : key == Qt::Key_Right ? 1
                     : key == Qt::Key_Up    ? -per_node_
                     : key == Qt::Key_Down  ? per_node_
                                            : 0;
      if (by == 0 || !ready_) return false;
      rank_ = std::clamp(std::max(rank_, 0) + by, 0, std::min(drawn_ * per_node_, mesh_.world()) - 1);
      show_text();
      chart_->redraw_highlights();
      return true;
    };
    chart_->hovered = [this](QPointF at) {
      hover_ = rank_at(at);
      chart_->redraw_highlights();
    };
    chart_->left = [this] {
      hover_ = -1;
      chart_->redraw_highlights();
    };
  }

  void paint_to(QPaintDevice& device, QSize size) override {
    resize(size);
    flush();
    if (ready_) leave_room(size.height());
    chart_->paint_to(device, size);
  }
  [[nodiscard]] std::string csv() override {
    std::string text = "rank,node,tp,cp,dp,pp\n";
    for (int rank = 0; rank < mesh_.world(); ++rank) {
      text += std::to_string(rank) + "," + std::to_string(rank / per_node_);
      for (const Axis axis : kAxes) text += "," + std::to_string(mesh_.coordinate(rank, axis));
      text += "\n";
    }
    return text;
  }
  [[nodiscard]] QVariantMap state() const override { return {{"color", color_->currentIndex()}}; }
  void restore(const QVariantMap& state) override {
    if (state.contains("color")) color_->setCurrentIndex(std::clamp(state["color"].toInt(), 0, 3));
  }

protected:
  void resizeEvent(QResizeEvent* event) override {
    View::resizeEvent(event);
    if (ready_) leave_room(chart_->height());
  }
  void refresh(Changes changes) override {
    if ((changes & kMomentChanged) != 0) show_load();
    if ((changes & (kSelectionChanged | kRowsChanged | kDetailChanged)) == 0) return;
    const int row = session().current();
    ready_ = row >= 0 && session().rows()[static_cast<std::size_t>(row)].layout.world() ==
                             device_count(session().results().study.cluster);
    chart_->set_message(ready_     ? QString()
                        : row >= 0 ? QStringLiteral("This layout is not for as many devices as the cluster has")
                                   : QStringLiteral("Select a layout to see where its ranks lie"));
    if (ready_) {
      const ClusterSpec& cluster = session().results().study.cluster;
      std::vector<int> fanouts;
      for (const TierSpec& tier : cluster.tiers) fanouts.push_back(tier.fanout);
      mesh_ = Mesh(session().rows()[static_cast<std::size_t>(row)].layout, fanouts);
      per_node_ = std::max(1, devices_per_node(cluster));
      nodes_ = (mesh_.world() + per_node_ - 1) / per_node_;
      drawn_ = std::min(nodes_, kMostNodes);
      columns_ = std::max(1, static_cast<int>(std::ceil(std::sqrt(double(drawn_) * 1.8))));
      rank_ = rank_ >= mesh_.world() ? 0 : std::max(0, rank_);
      cell_columns_ = std::max(1, static_cast<int>(std::ceil(std::sqrt(double(per_node_) * 1.6))));
      const int lines = (drawn_ + columns_ - 1) / columns_;
      AxisLook axis;
      axis.visible = false;
      AxisLook down = axis;
      down.reversed = true;
      chart_->set_axes(axis, down);
      lines_ = lines;
      leave_room(chart_->height());
    }
    const auto detail = ready_ ? session().detail(row) : nullptr;
    traffic_ = detail && detail->simulation ? Traffic(*detail->simulation, mesh_) : Traffic();
    for (QWidget* part : {static_cast<QWidget*>(play_), static_cast<QWidget*>(moment_)})
      part->setEnabled(traffic_.end() > 0);
    show_text();
    show_load();
    chart_->redraw();
  }

private:
  /// Below the nodes, for the lines that tell the groups apart.
  void leave_room(int height) {
    int texts = 1;
    for (const Group group : kGroupsShown) texts += mesh_.size(group) > 1 ? 1 : 0;
    const double pixels = texts * fontMetrics().height();
    const double share = std::min(0.5, pixels / std::max(1.0, double(height) - 24));
    chart_->set_extent(-0.05, columns_ + 0.05, -0.05, lines_ / (1 - share));
    chart_->redraw();
  }

  [[nodiscard]] QColor tier_color(int tier) const { return theme().series[tier == 0 ? 2 : tier == 1 ? 1 : 6]; }

  /// How many devices' links are in use: now while the step plays, else over the step.
  void show_load() {
    const double now = session().moment();
    if (!moment_->isSliderDown())
      moment_->setValue(now >= 0 && traffic_.end() > 0 ? static_cast<int>(now / traffic_.end() * kMoments) : 0);
    QString text;
    const auto& tiers = session().results().study.cluster.tiers;
    for (int tier = 0; traffic_.end() > 0 && tier < traffic_.tiers() && tier < static_cast<int>(tiers.size()); ++tier) {
      const double share = now >= 0 ? traffic_.share(tier, now) : traffic_.average(tier);
      text += QStringLiteral("<span style='color:%1'>■</span> %2 links: %3 % of devices &nbsp; ")
                  .arg(tier_color(tier).name(),
                       QString::fromStdString(tiers[static_cast<std::size_t>(tier)].name).toHtmlEscaped())
                  .arg(share * 100, 0, 'f', 0);
    }
    if (!text.isEmpty())
      text += now >= 0 ? QStringLiteral("at %1").arg(text_of(short_seconds(now))) : QStringLiteral("on average");
    load_->setToolTip(QStringLiteral(
        "Devices whose links of a tier carry something: now while the step plays, else averaged over the step"));
    load_->setText(text);
    chart_->redraw_highlights();
  }

  /// While the step plays: a band at a device's foot for each tier whose links it uses.
  void paint_load(QPainter& painter, const Frame& frame) const {
    const double now = session().moment();
    if (now < 0 || !(traffic_.end() > 0)) return;
    std::vector<std::vector<Traffic::Use>> uses;
    for (int stage = 0; stage < mesh_.degree(Axis::pp); ++stage) uses.push_back(traffic_.at(stage, now));
    for (int rank = 0; rank < std::min(drawn_ * per_node_, mesh_.world()); ++rank) {
      const auto& mine = uses[static_cast<std::size_t>(mesh_.coordinate(rank, Axis::pp))];
      if (mine.empty()) continue;
      const QRectF device = pixels(frame, cell(rank));
      const double height = std::max(2.0, device.height() * 0.16);
      for (int tier = 0; tier < traffic_.tiers(); ++tier)
        if (std::any_of(mine.begin(), mine.end(), [tier](const Traffic::Use& use) { return use.tier == tier; })) {
          const QRectF band(device.left(), device.bottom() - height * (tier + 1), device.width(), height);
          painter.fillRect(band.adjusted(0, -1, 0, 0), theme().base);
          painter.fillRect(band, tier_color(tier));
        }
    }
  }

  void show_text() {
    if (!ready_ || rank_ < 0) return text_->clear();
    QString text = QStringLiteral("rank %1: node %2").arg(rank_).arg(rank_ / per_node_);
    for (std::size_t i = 0; i < kAxes.size(); ++i)
      text += QStringLiteral(", %1 %2").arg(QString::fromLatin1(kAxisNames[i])).arg(mesh_.coordinate(rank_, kAxes[i]));
    if (nodes_ > drawn_) text += QStringLiteral("   (%1 more nodes are alike)").arg(nodes_ - drawn_);
    text_->setText(text);
    chart_->setAccessibleDescription(text);
  }

  static constexpr double kTitle = 0.24; ///< share of a node's box above its devices
  [[nodiscard]] QRectF node_box(int node) const { return {node % columns_ + 0.04, node / columns_ + 0.04, 0.92, 0.92}; }
  [[nodiscard]] QRectF cell(int rank) const {
    const QRectF node = node_box(rank / per_node_);
    const int lines = (per_node_ + cell_columns_ - 1) / cell_columns_;
    const int at = rank % per_node_;
    const double w = node.width() / (cell_columns_ + 0.4);
    const double h = node.height() * (0.97 - kTitle) / lines;
    return {node.left() + (at % cell_columns_ + 0.25) * w,
            node.top() + node.height() * kTitle + (at / cell_columns_) * h, w * 0.9, h * 0.86};
  }
  static QRectF pixels(const Frame& frame, const QRectF& box) {
    return QRectF(frame.at(box.left(), box.top()), frame.at(box.right(), box.bottom())).normalized();
  }

  [[nodiscard]] int rank_at(QPointF pixel) const {
    if (!ready_) return -1;
    const QPointF value = chart_->value_at(pixel);
    const int node = static_cast<int>(std::floor(value.y())) * columns_ + static_cast<int>(std::floor(value.x()));
    if (value.x() < 0 || value.x() >= columns_ || value.y() < 0 || node >= drawn_) return -1;
    for (int rank = node * per_node_; rank < std::min((node + 1) * per_node_, mesh_.world()); ++rank)
      if (cell(rank).contains(value)) return rank;
    return -1;
  }

  void paint_devices(QPainter& painter, const Frame& frame) {
    if (!ready_) return;
    painter.setClipRect(frame.area);
    const QFontMetricsF metrics(painter.font());
    const Axis axis = kAxes[static_cast<std::size_t>(color_->currentIndex())];
    const int degree = mesh_.degree(axis);
    for (int node = 0; node < drawn_; ++node) {
      const QRectF box = pixels(frame, node_box(node));
      painter.setPen(QPen(theme().line, 0));
      painter.setBrush(theme().window);
      painter.drawRoundedRect(box, 4, 4);
      const QString name = QStringLiteral("node %1").arg(node);
      if (box.height() * kTitle > metrics.height() + 3 && box.width() > metrics.horizontalAdvance(name) + 8) {
        painter.setPen(theme().muted);
        painter.drawText(QPointF(box.left() + 6, box.top() + metrics.ascent() + 1), name);
      }
      for (int rank = node * per_node_; rank < std::min((node + 1) * per_node_, mesh_.world()); ++rank) {
        const QRectF device = pixels(frame, cell(rank));
        const int place = mesh_.coordinate(rank, axis);
        const QColor fill = degree <= 8 ? theme().series[static_cast<std::size_t>(place)]
                                        : gradient(theme(), double(place) / std::max(1, degree - 1));
        painter.fillRect(device, fill);
        const QString text = QString::number(place);
        if (device.width() < metrics.horizontalAdvance(text) + 4 || device.height() < metrics.ascent()) continue;
        painter.setPen(text_on(fill));
        painter.drawText(device, Qt::AlignCenter, text);
      }
    }
    painter.setClipping(false);
  }

  void paint_groups(QPainter& painter, const Frame& frame) {
    if (!ready_ || rank_ < 0) return;
    painter.setClipRect(frame.area);
    paint_load(painter, frame);
    painter.setBrush(Qt::NoBrush);
    double inset = 0;
    double y = frame.area.bottom() - 4;
    const int last = drawn_ * per_node_;
    for (std::size_t i = 0; i < kGroupsShown.size(); ++i) {
      const Group group = kGroupsShown[i];
      if (mesh_.size(group) < 2) continue;
      const QColor color = i == 2 ? theme().good : i == 3 ? theme().bad : i == 0 ? theme().text : theme().accent;
      painter.setPen(QPen(color, 2, i == 1 || i == 4 ? Qt::DashLine : Qt::SolidLine));
      for (const int member : mesh_.members(group, rank_))
        if (member < last) painter.drawRect(pixels(frame, cell(member)).adjusted(-inset, -inset, inset, inset));
      const GroupShape& shape = mesh_.shape(group);
      painter.drawText(QPointF(frame.area.left() + 6, y),
                       QStringLiteral("%1: %2 ranks, %3 per node on %4 %5")
                           .arg(QString::fromLatin1(kGroupNames[i]))
                           .arg(shape.size)
                           .arg(shape.per_node())
                           .arg(shape.nodes())
                           .arg(shape.nodes() == 1 ? QStringLiteral("node") : QStringLiteral("nodes")));
      y -= QFontMetricsF(painter.font()).height();
      inset += 1.5;
    }
    if (hover_ >= 0) {
      painter.setPen(QPen(theme().accent, 3));
      painter.drawRect(pixels(frame, cell(hover_)));
    }
    painter.setClipping(false);
  }

  Chart* chart_ = nullptr;
  QComboBox* color_;
  QToolButton* play_;
  QSlider* moment_;
  QLabel* load_;
  QLabel* text_;
  Mesh mesh_;
  Traffic traffic_;
  bool ready_ = false;
  int per_node_ = 1;
  int nodes_ = 0;
  int drawn_ = 0;
  int columns_ = 1;
  int lines_ = 1; ///< of nodes
  int cell_columns_ = 1;
  int rank_ = 0;
  int hover_ = -1;
};

} // namespace

std::unique_ptr<View> make_topology_view(ViewContext context) {
  return std::make_unique<TopologyView>(context);
}

} // namespace foretrain::gui
