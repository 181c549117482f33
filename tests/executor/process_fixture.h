#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/json.h"
#include "tests/support/places.h"

/// `foretrain-run` as a user starts it: one process per rank.
namespace foretrain::test {

namespace fs = std::filesystem;

inline std::string plan_text(const std::string& layout, const std::string& job = "") {
  return R"({"model": {"name": "tiny", "layers": 4, "hidden": 16, "heads": 4, "kv_heads": 2, "head_dim": 4, "ffn": 24,
      "vocab": 51}, "cluster": {"preset": "dgx-h100", "devices": 8},
      "job": {"sequence_length": 8, "global_batch": 4, "precision": "fp64", "semantics": "foretrain")" +
         job + R"(}, "layout": {"sharding": "none", "micro_batch": 1, )" + layout + "}}";
}

class ForetrainRun : public testing::Test {
protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "foretrain-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  [[nodiscard]] fs::path at(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(at(name)) << text; }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    std::ifstream in(at(name));
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

  /// Starts it with its output in the files out.txt and err.txt.
  pid_t start(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), test::build_folder() / "bin/foretrain-run");
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, 1, at("out.txt").c_str(), flags, 0644);
    posix_spawn_file_actions_addopen(&files, 2, at("err.txt").c_str(), flags, 0644);
    pid_t process = -1;
    EXPECT_EQ(posix_spawn(&process, words[0], &files, nullptr, words.data(), environ), 0);
    posix_spawn_file_actions_destroy(&files);
    return process;
  }
  static int wait_for(pid_t process) {
    int status = 0;
    waitpid(process, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int run(std::vector<std::string> arguments) const { return wait_for(start(std::move(arguments))); }

  /// Lines of a run's file.
  [[nodiscard]] std::vector<Json> lines_of(const std::string& name) const {
    std::vector<Json> lines;
    std::ifstream in(at(name));
    for (std::string line; std::getline(in, line);) {
      auto json = parse_json(line, name);
      EXPECT_TRUE(json) << to_string(json.error());
      if (json) lines.push_back(std::move(*json));
    }
    return lines;
  }

  fs::path folder_;
};

/// Ranks that the launcher has started, in the order of their start.
inline std::vector<pid_t> children_of(pid_t process) {
  const std::string id = std::to_string(process);
  std::ifstream in("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; in >> child;) children.push_back(child);
  return children;
}

} // namespace foretrain::test
