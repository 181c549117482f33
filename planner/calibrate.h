#pragma once

#include <string>
#include <vector>

#include "core/program/program.h"
#include "core/spec/calibration.h"
#include "core/spec/cluster.h"
#include "planner/measured_run.h"

namespace foretrain {

/// An op that the executor ran, with its median time.
struct ProbedOp {
  std::vector<Kernel> kernels;
  double seconds = 0;
};

/// Everything that was measured on a machine.
struct Probes {
  std::vector<ProbedOp> ops;
  std::vector<ProbedCollective> collectives;
  int ranks = 1;      ///< that were busy at once
  std::string source; ///< hardware and versions, for people
};

/// Compute ops of a role of a run, by their number in the step; transfers are left out.
void add_ops(const Program& program, const Role& role, const MeasuredRank& measured, std::vector<ProbedOp>& ops);

/// Fits the model of `simulator/cost` to the probes, relative to the figures of the cluster's device: products,
/// attention and memory-bound kernels each by least relative squares over all their ops, collectives as tables.
/// Errors: too few ops of a kind, a device without the peak of a precision that was probed.
[[nodiscard]] Result<Calibration> calibrate(const Probes& probes, const ClusterSpec& cluster);

/// The same from ops of ordinary runs alone: what they do not show (collectives, links, interference, experts, spread)
/// stays as in `before`, and so does attention where none ran. Errors: too few products or memory-bound ops, a device
/// without the peak of a precision that ran.
[[nodiscard]] Result<Calibration> recalibrate(const Calibration& before, const Probes& probes,
                                              const ClusterSpec& cluster);

} // namespace foretrain
