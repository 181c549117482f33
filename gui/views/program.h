// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <QObject>
#include <QString>
#include <QStringList>

class QProcess;

namespace foretrain::gui {

[[nodiscard]] QStringList words_of(const std::vector<std::string>& list);

/// The program `foretrain`, run beside the window: one command at a time, its log line by line, its document at the
/// end.
class Program final : public QObject {
public:
  struct Outcome {
    int code = -1;        ///< -1: it was not started, or did not end by itself
    std::string document; ///< stdout
    QString last_words;   ///< the last line of its log
  };

  explicit Program(QObject* parent = nullptr);
  ~Program() override; ///< ends the command

  /// `done` follows; nothing happens while a command runs.
  void start(const std::string& program, const QStringList& arguments, std::function<void(const Outcome&)> done);
  [[nodiscard]] bool running() const;
  /// Asks it to end and to keep what it has; it is killed if it does not within some seconds.
  void cancel();
  /// For exports: there is nobody else to wait.
  void wait(int milliseconds);

  std::function<void(const QString& line)> said; ///< of stderr

private:
  void take_log(bool all);
  void finish(int code);

  QProcess* process_;
  QString pending_; ///< a line that is not yet whole
  QString last_;
  std::function<void(const Outcome&)> done_;
};

} // namespace foretrain::gui
