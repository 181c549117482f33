// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/views/program.h"

#include <utility>

#include <QProcess>
#include <QTimer>

namespace foretrain::gui {
namespace {

constexpr int kPatience = 5000; ///< milliseconds that a command has to end

} // namespace

Program::Program(QObject* parent) : QObject(parent), process_(new QProcess(this)) {
  connect(process_, &QProcess::readyReadStandardError, this, [this] { take_log(false); });
  connect(process_, &QProcess::finished, this,
          [this](int code, QProcess::ExitStatus status) { finish(status == QProcess::NormalExit ? code : -1); });
  connect(process_, &QProcess::errorOccurred, this, [this](QProcess::ProcessError error) {
    if (error != QProcess::FailedToStart) return; // the others are followed by `finished`
    last_ = process_->errorString();
    finish(-1);
  });
}

Program::~Program() {
  process_->disconnect(this);
  if (process_->state() == QProcess::NotRunning) return;
  process_->terminate();
  if (!process_->waitForFinished(kPatience)) process_->kill();
  process_->waitForFinished(1000);
}

void Program::start(const std::string& program, const QStringList& arguments,
                    std::function<void(const Outcome&)> done) {
  if (running()) return;
  done_ = std::move(done);
  pending_.clear();
  last_.clear();
  process_->start(QString::fromStdString(program), arguments);
}

bool Program::running() const {
  return process_->state() != QProcess::NotRunning;
}

void Program::cancel() {
  if (!running()) return;
  process_->terminate();
  QTimer::singleShot(kPatience, process_, [process = process_, id = process_->processId()] {
    if (process->state() != QProcess::NotRunning && process->processId() == id) process->kill();
  });
}

void Program::wait(int milliseconds) {
  if (running()) process_->waitForFinished(milliseconds);
}

void Program::take_log(bool all) {
  pending_ += QString::fromUtf8(process_->readAllStandardError());
  qsizetype from = 0;
  for (qsizetype end = pending_.indexOf(QLatin1Char('\n')); end >= 0 || (all && from < pending_.size());
       end = pending_.indexOf(QLatin1Char('\n'), from)) {
    const QString line = pending_.mid(from, end < 0 ? -1 : end - from);
    from = end < 0 ? pending_.size() : end + 1;
    if (!line.trimmed().isEmpty()) last_ = line.trimmed();
    if (said) said(line);
  }
  pending_ = pending_.mid(from);
}

void Program::finish(int code) {
  take_log(true);
  const Outcome outcome{code, process_->readAllStandardOutput().toStdString(), last_};
  if (const auto done = std::exchange(done_, nullptr)) done(outcome);
}

QStringList words_of(const std::vector<std::string>& list) {
  QStringList words;
  for (const std::string& word : list) words << QString::fromStdString(word);
  return words;
}

} // namespace foretrain::gui
