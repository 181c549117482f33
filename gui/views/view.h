// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <QVariantMap>
#include <QWidget>

#include "gui/model/session.h"
#include "gui/plot/theme.h"

class QMenu;
class QPaintDevice;
class QVBoxLayout;

namespace foretrain::gui {

class Chart;
class CommandRegistry;

struct ViewContext {
  Session& session;
  CommandRegistry& commands;
};

/// One way to look at the session. Changes reach a view while it is visible; those it missed, when it is shown.
class View : public QWidget {
public:
  explicit View(ViewContext context, QWidget* parent = nullptr);
  ~View() override;

  /// Takes the session's state over, whether or not the view is visible.
  void flush();
  virtual void set_theme(const Theme& theme);
  [[nodiscard]] const Theme& theme() const { return *theme_; }

  /// What the view shows, as a table.
  [[nodiscard]] virtual std::string csv() = 0;
  /// What it shows, as vectors.
  virtual void paint_to(QPaintDevice& device, QSize size);
  virtual void fit();                                       ///< shows all
  virtual void act(std::string_view /*what*/) {}            ///< something that only this view does: "start", "cancel"
  [[nodiscard]] virtual bool busy() const { return false; } ///< a program runs for it
  void step_zoom(int by);                                   ///< -1: what the plot showed before, 1: after
  virtual void frame_selection() {}                         ///< shows the selection
  /// All that the next start brings back: `state` and the part of the plot that is shown.
  [[nodiscard]] QVariantMap kept() const;
  void bring_back(const QVariantMap& kept);
  /// What is the view's own of it.
  [[nodiscard]] virtual QVariantMap state() const { return {}; }
  virtual void restore(const QVariantMap& /*state*/) {}

protected:
  virtual void refresh(Changes changes) = 0;
  /// The usual column of parts, with the usual margins.
  QVBoxLayout* add_column();
  /// The plot that the view is about, under what the column holds: theme, focus, fitting and export then go to it.
  Chart* add_chart(QVBoxLayout* column, const QString& name);
  void add_chart(QVBoxLayout* column, Chart* chart, const QString& name);
  void showEvent(QShowEvent* event) override;
  [[nodiscard]] Session& session() const { return context_.session; }
  [[nodiscard]] CommandRegistry& commands() const { return context_.commands; }
  /// A row's number and layout in one line.
  [[nodiscard]] QString row_title(int row) const;
  /// Commands by id, as a menu; "-" is a line.
  void show_menu(std::span<const char* const> ids, QPoint global);

private:
  ViewContext context_;
  const Theme* theme_ = &light_theme();
  Chart* plot_ = nullptr;
  Changes missed_ = kEverything;
  int observer_ = 0;
};

/// An entry of the catalogue of views.
struct ViewEntry {
  const char* id;    ///< "pareto": in --view and in files
  const char* title; ///< of its tab
  const char* help;  ///< what one looks at
  std::unique_ptr<View> (*make)(ViewContext context);
};

/// All views, in the order of their tabs; the table is first.
[[nodiscard]] std::span<const ViewEntry> views();
[[nodiscard]] const ViewEntry* find_view(std::string_view id);

[[nodiscard]] inline QString text_of(std::string_view text) {
  return QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
}
/// A value of a CSV file, quoted where that is needed.
[[nodiscard]] std::string csv_text(const std::string& text);

} // namespace foretrain::gui
