#pragma once

#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/base/json.h"
#include "tests/support/places.h"

/// Runs the built `foretrain` as its users do.
namespace foretrain::test {

/// A new folder, removed at the end.
class Folder {
public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "foretrain-cli-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
    return *this / name;
  }

private:
  std::filesystem::path path_;
};

struct Outcome {
  int code = -1; ///< exit code; 1000 + signal when a signal ended it
  std::string out;
  std::string err;
  [[nodiscard]] Json json() const {
    const auto parsed = parse_json(out, "stdout");
    EXPECT_TRUE(parsed) << (parsed ? "" : to_string(parsed.error())) << "\n" << err;
    return parsed ? *parsed : Json::object();
  }
};

struct Options {
  std::string out;         ///< stdout goes to this file instead
  rlim_t largest_file = 0; ///< bytes; 0: no limit
  bool terminal = false;   ///< stderr is a terminal
};

/// Whether this system hands out pseudo-terminals; a bare root without /dev/pts does not.
inline bool terminals_exist() {
  int outside = -1, inside = -1;
  if (::openpty(&outside, &inside, nullptr, nullptr, nullptr) != 0) return false;
  ::close(outside);
  ::close(inside);
  return true;
}

/// A started `foretrain`; `end` waits for it.
class Started {
public:
  explicit Started(std::vector<std::string> arguments, const Options& options = {}) {
    const std::string out = options.out.empty() ? folder_ / "out" : options.out;
    const std::string err = folder_ / "err";
    program_ = test::build_folder() / "bin/foretrain";
    arguments.insert(arguments.begin(), program_);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int inside = -1;
    if (options.terminal && ::openpty(&terminal_, &inside, nullptr, nullptr, nullptr) != 0)
      ADD_FAILURE() << "no terminal";
    pid_ = ::fork();
    if (pid_ != 0) {
      if (inside >= 0) ::close(inside);
      return;
    }
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
    ::dup2(inside >= 0 ? inside : ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    if (options.largest_file > 0) {
      const rlimit limit{options.largest_file, options.largest_file};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      ::signal(SIGXFSZ, SIG_IGN); // the write fails instead, as on a full disk
    }
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  void interrupt() const { ::kill(pid_, SIGINT); }
  void kill() const { ::kill(pid_, SIGKILL); }
  [[nodiscard]] bool running() const { return ::kill(pid_, 0) == 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0; }
  Outcome end() {
    Outcome outcome;
    if (terminal_ >= 0) { // until the program closes its side
      std::array<char, 4096> piece{};
      for (ssize_t n = 0; (n = ::read(terminal_, piece.data(), piece.size())) > 0;)
        shown_.append(piece.data(), static_cast<std::size_t>(n));
      ::close(terminal_);
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    outcome.out = read(folder_ / "out");
    outcome.err = terminal_ >= 0 ? shown_ : read(folder_ / "err");
    return outcome;
  }

private:
  static std::string read(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  Folder folder_;
  std::string program_;
  std::string shown_; ///< on the terminal
  int terminal_ = -1;
  pid_t pid_ = -1;
};

inline Outcome foretrain(std::vector<std::string> arguments, const Options& options = {}) {
  return Started(std::move(arguments), options).end();
}

/// A study that takes a moment: one billion parameters on four devices.
inline std::vector<std::string> small_plan(std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {
      "plan",   "--model",  "llama3.2-1b", "--cluster", "dgx-h100",
      "--gpus", "4",        "--seq-len",   "2048",      "--global-batch",
      "16",     "--engine", "slots",       "--where",   "pp <= 2 and cp == 1 and recompute != selective"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// A plan that fits, as a file.
inline std::string plan_file(const Folder& folder) {
  return folder.write("plan.json", R"({ "model": "llama3.2-1b", "cluster": { "preset": "dgx-h100", "devices": 4 },
    "job": { "sequence_length": 2048, "global_batch": 16 },
    "layout": { "tp": 2, "pp": 2, "sequence_parallel": true } })");
}

} // namespace foretrain::test
