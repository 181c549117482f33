// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <string>

#include <QString>
#include <QVariantMap>
#include <QWidget>

#include "gui/model/run_plan.h"

class QCheckBox;
class QComboBox;
class QLineEdit;
class QSpinBox;

namespace foretrain::gui {

/// What a run keeps and starts from: checkpoints, restarts, tokens, weights.
class RunForm final : public QWidget {
public:
  explicit RunForm(QWidget* parent);

  /// Writes what is asked for into a request.
  void fill(RunRequest& request) const;
  /// Folder into which weights are exported; empty: none is named.
  [[nodiscard]] std::string export_folder() const;
  /// Whether anything differs from a plain run.
  [[nodiscard]] bool used() const;
  [[nodiscard]] QVariantMap state() const;
  void restore(const QVariantMap& state);

  std::function<void()> changed;

private:
  QLineEdit* checkpoint_;
  QSpinBox* every_;
  QCheckBox* background_;
  QLineEdit* resume_;
  QSpinBox* restarts_;
  QLineEdit* tokens_;
  QComboBox* type_;
  QLineEdit* weights_;
  QLineEdit* export_;
};

} // namespace foretrain::gui
