#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include <sys/stat.h>
#include <sys/wait.h>

#include "planner/cli/slurm.h"
#include "tests/planner/cli/program.h"

/// The script of a batch job, run by a shell whose srun and scontrol are ours.
namespace foretrain::test {
namespace {

namespace fs = std::filesystem;

class SlurmScript : public testing::Test {
protected:
  /// `codes`: what each srun ends with, in order; the last one stands for all further ones.
  int run(int max_restarts, const std::string& codes, const std::string& environment = "") {
    cli::SlurmJob job;
    job.program = "/opt/foretrain-run";
    job.arguments = {"plan it.json", "--steps", "4"};
    job.folder = at(".");
    job.ranks = 4;
    job.per_node = 2;
    job.max_restarts = max_restarts;
    script_ = cli::slurm_script(job);
    program("scontrol", "case $2 in hostnames) echo node1; echo node2 ;; *) echo NodeAddr=10.0.0.1 ;; esac");
    program("srun", "echo \"$FORETRAIN_RESTART|$MASTER_ADDR|$*\" >>'" + at("calls") + "'\n" + "set -- " + codes + "\n" +
                        "n=$(wc -l <'" + at("calls") +
                        "'); while [ $n -gt 1 ] && [ $# -gt 1 ]; do shift; n=$((n - 1)); done\n" + "exit $1");
    std::ofstream(at("job.sbatch")) << script_;
    fs::remove(at("calls"));
    const std::string command = "SLURM_JOB_ID=7 SLURM_JOB_NODELIST='node[1-2]' " + environment + " PATH='" + at(".") +
                                "':$PATH sh '" + at("job.sbatch") + "' >'" + at("out") + "' 2>&1";
    return WEXITSTATUS(std::system(command.c_str()));
  }
  /// What each srun was given.
  [[nodiscard]] std::vector<std::string> calls() const {
    std::vector<std::string> list;
    std::ifstream in(at("calls"));
    for (std::string line; std::getline(in, line);) list.push_back(line);
    return list;
  }
  [[nodiscard]] std::string at(const std::string& name) const { return folder_ / name; }

  std::string script_;

private:
  void program(const std::string& name, const std::string& text) const {
    std::ofstream(at(name)) << "#!/bin/sh\n" << text << "\n";
    chmod(at(name).c_str(), 0755);
  }
  Folder folder_;
};

TEST_F(SlurmScript, StartsRanksOnceWithoutRestarts) {
  EXPECT_EQ(run(0, "1"), 1);
  ASSERT_EQ(calls().size(), 1U);
  EXPECT_NE(calls()[0].find("|10.0.0.1|--kill-on-bad-exit=1"), std::string::npos) << calls()[0];
  EXPECT_NE(calls()[0].find("/opt/foretrain-run plan it.json --steps 4"), std::string::npos) << calls()[0];
  EXPECT_NE(script_.find("#SBATCH --no-requeue\n"), std::string::npos) << script_;
}

TEST_F(SlurmScript, StartsLostRanksAgainAndCounts) {
  EXPECT_EQ(run(3, "1 137 0"), 0);
  ASSERT_EQ(calls().size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(calls()[i].substr(0, 2), std::to_string(i) + "|");
  EXPECT_NE(script_.find("#SBATCH --requeue\n#SBATCH --open-mode=append\n"), std::string::npos) << script_;
}

TEST_F(SlurmScript, GivesUpAfterAsManyRestartsAsAllowed) {
  EXPECT_EQ(run(2, "1"), 1);
  EXPECT_EQ(calls().size(), 3U);
}

TEST_F(SlurmScript, DoesNotRepeatWhatWouldComeAgain) {
  for (const char* code : {"0", "2", "3", "130"}) {
    EXPECT_EQ(run(5, code), std::atoi(code));
    EXPECT_EQ(calls().size(), 1U) << code;
  }
}

TEST_F(SlurmScript, CountsOnWhenTheJobWasQueuedAgain) {
  EXPECT_EQ(run(2, "1 0", "SLURM_RESTART_COUNT=1"), 0);
  ASSERT_EQ(calls().size(), 2U);
  EXPECT_EQ(calls()[0].substr(0, 2), "1|");
  EXPECT_EQ(calls()[1].substr(0, 2), "2|");
}

} // namespace
} // namespace foretrain::test
