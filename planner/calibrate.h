#pragma once

#include <string>
#include <vector>

#include "core/program/program.h"
#include "core/spec/calibration.h"
#include "core/spec/cluster.h"
#include "planner/measured_run.h"

namespace foretrain {

/// An op that the executor ran, with its time.
struct ProbedOp {
  std::vector<Kernel> kernels;
  double seconds = 0;
  Segment segment = Segment::none;
  Pass pass = Pass::forward;
};

/// A rank's step with many collectives: what they took between its compute, which is more than they take by themselves
/// where one rank comes later than another.
struct ProbedStep {
  struct Transfer {
    Collective collective = Collective::all_reduce;
    DType dtype = DType::fp32;
    Bytes bytes;
    double seconds = 0;
  };
  int ranks = 1; ///< of the group, all inside a node
  std::vector<Transfer> transfers;
  double compute = 0; ///< seconds, all ops together
};

/// Everything that was measured on a machine.
struct Probes {
  std::vector<ProbedOp> ops;
  std::vector<ProbedCollective> collectives;
  std::vector<ProbedStep> steps;
  int ranks = 1;      ///< that were busy at once
  std::string source; ///< hardware and versions, for people
};

/// Compute ops of a role of a run, by their number in the step; transfers are left out.
void add_ops(const Program& program, const Role& role, const MeasuredRank& measured, std::vector<ProbedOp>& ops);

/// The step of a rank whose collectives are all of one group of `ranks` ranks.
[[nodiscard]] ProbedStep step_of(const Program& program, const Role& role, const MeasuredRank& measured, int ranks);

/// Fits the model of `simulator/cost` to the probes, relative to the figures of the cluster's device: products,
/// attention and memory-bound kernels each by least relative squares over all their ops, memory-bound operators also
/// each by itself, collectives as tables; how much later the last of some ranks comes (`Calibration::spread`) from what
/// collectives take in `Probes::steps` beyond those tables.
/// Errors: too few ops of a kind, a device without the peak of a precision that was probed.
[[nodiscard]] Result<Calibration> calibrate(const Probes& probes, const ClusterSpec& cluster);

/// The same from ops of ordinary runs alone: what they do not show (collectives, links, interference, experts, spread)
/// stays as in `before`, and so does attention where none ran. Errors: too few products or memory-bound ops, a device
/// without the peak of a precision that ran.
[[nodiscard]] Result<Calibration> recalibrate(const Calibration& before, const Probes& probes,
                                              const ClusterSpec& cluster);

} // namespace foretrain
