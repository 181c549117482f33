// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/run_form.h"

#include <QCheckBox>
#include <QComboBox>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QSpinBox>

namespace foretrain::gui {
namespace {

std::string text_in(const QLineEdit* field) {
  return field->text().trimmed().toStdString();
}

} // namespace

RunForm::RunForm(QWidget* parent)
    : QWidget(parent), checkpoint_(new QLineEdit(this)), every_(new QSpinBox(this)),
      background_(new QCheckBox(QStringLiteral("write in the background"), this)), resume_(new QLineEdit(this)),
      restarts_(new QSpinBox(this)), tokens_(new QLineEdit(this)), type_(new QComboBox(this)),
      weights_(new QLineEdit(this)), export_(new QLineEdit(this)) {
  auto* form = new QFormLayout(this);
  form->setContentsMargins(0, 0, 0, 0);
  const auto row = [&](const QString& title, QWidget* first, std::initializer_list<QWidget*> more = {}) {
    first->setAccessibleName(title);
    auto* line = new QHBoxLayout;
    line->addWidget(first, 1);
    for (QWidget* widget : more) line->addWidget(widget);
    auto* label = new QLabel(title, this);
    label->setBuddy(first);
    form->addRow(label, line);
  };
  every_->setRange(0, 1'000'000);
  every_->setSpecialValueText(QStringLiteral("only after the last step"));
  every_->setPrefix(QStringLiteral("every "));
  every_->setSuffix(QStringLiteral(" steps"));
  every_->setAccessibleName(QStringLiteral("Steps between checkpoints"));
  background_->setToolTip(QStringLiteral("The state is copied in memory and written while training goes on"));
  restarts_->setRange(0, 1'000'000);
  restarts_->setPrefix(QStringLiteral("restarts: "));
  restarts_->setAccessibleName(QStringLiteral("Restarts after lost ranks"));
  restarts_->setToolTip(QStringLiteral("How often a run that lost a rank goes on from its newest checkpoint"));
  type_->addItem(QStringLiteral("2 bytes each"), QStringLiteral("uint16"));
  type_->addItem(QStringLiteral("4 bytes each"), QStringLiteral("uint32"));
  type_->setAccessibleName(QStringLiteral("Size of a token"));
  checkpoint_->setPlaceholderText(QStringLiteral("folder; empty: none are made"));
  resume_->setPlaceholderText(QStringLiteral("a checkpoint, or a folder of them: the newest"));
  tokens_->setPlaceholderText(QStringLiteral("file of nothing but tokens; empty: synthetic ones"));
  weights_->setPlaceholderText(QStringLiteral("folder under Hugging Face’s names"));
  export_->setPlaceholderText(QStringLiteral("folder for “Export weights”, under Hugging Face’s names"));
  row(QStringLiteral("Checkpoints into"), checkpoint_, {every_, background_, restarts_});
  row(QStringLiteral("Resume from"), resume_);
  row(QStringLiteral("Tokens"), tokens_, {type_});
  row(QStringLiteral("Start weights"), weights_);
  row(QStringLiteral("Export weights to"), export_);
  const auto tell = [this] {
    if (changed) changed();
  };
  for (QLineEdit* field : {checkpoint_, resume_, tokens_, weights_, export_})
    connect(field, &QLineEdit::textChanged, this, tell);
  for (QSpinBox* field : {every_, restarts_}) connect(field, &QSpinBox::valueChanged, this, tell);
  connect(background_, &QCheckBox::toggled, this, tell);
  connect(type_, &QComboBox::currentIndexChanged, this, tell);
}

void RunForm::fill(RunRequest& request) const {
  request.checkpoint = text_in(checkpoint_);
  request.checkpoint_every = every_->value();
  request.checkpoint_background = background_->isChecked();
  request.resume = text_in(resume_);
  request.max_restarts = restarts_->value();
  request.tokens = text_in(tokens_);
  request.token_type = type_->currentData().toString().toStdString();
  request.weights = text_in(weights_);
}

std::string RunForm::export_folder() const {
  return text_in(export_);
}

bool RunForm::used() const {
  RunRequest request;
  fill(request);
  return !(request.checkpoint + request.resume + request.tokens + request.weights).empty() ||
         request.checkpoint_every > 0 || request.checkpoint_background || request.max_restarts > 0;
}

QVariantMap RunForm::state() const {
  return {
      {"checkpoint", checkpoint_->text()},   {"every", every_->value()},       {"background", background_->isChecked()},
      {"resume", resume_->text()},           {"restarts", restarts_->value()}, {"tokens", tokens_->text()},
      {"token_type", type_->currentIndex()}, {"weights", weights_->text()},    {"export", export_->text()}};
}

void RunForm::restore(const QVariantMap& state) {
  checkpoint_->setText(state["checkpoint"].toString());
  every_->setValue(state["every"].toInt());
  background_->setChecked(state["background"].toBool());
  resume_->setText(state["resume"].toString());
  restarts_->setValue(state["restarts"].toInt());
  tokens_->setText(state["tokens"].toString());
  type_->setCurrentIndex(state["token_type"].toInt() == 1 ? 1 : 0);
  weights_->setText(state["weights"].toString());
  export_->setText(state["export"].toString());
}

} // namespace foretrain::gui
