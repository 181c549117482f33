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

/// A rank's step with many collectives: what it took beyond its compute is more than they take by themselves.
struct ProbedStep {
  struct Transfer {
    Collective collective = Collective::all_reduce;
    DType dtype = DType::fp32;
    Bytes bytes;
  };
  int ranks = 1; ///< of the group, all inside a node
  std::vector<Transfer> transfers;
  std::vector<Op> compute;
  double seconds = 0; ///< of the whole step
};

/// Everything that was measured on a machine.
struct Probes {
  std::vector<ProbedOp> ops;
  std::vector<ProbedCollective> collectives;
  std::vector<ProbedStep> steps;
  int ranks = 1;      ///< that were busy at once
  std::string source; ///< hardware and versions, for people
};

/// Compute ops of a role of a run, by their number in the step; transfers are left out. Each took `times` what was
/// measured.
void add_ops(const Program& program, const Role& role, const MeasuredRank& measured, double times,
             std::vector<ProbedOp>& ops);

/// The step of a rank, of `seconds`, whose collectives are all of one group of `ranks` ranks.
[[nodiscard]] ProbedStep step_of(const Program& program, const Role& role, int ranks, double seconds);

/// Fits the model of `simulator/cost` to the probes, relative to the figures of the cluster's device: products,
/// attention and memory-bound kernels each by least relative squares over all their ops, memory-bound operators also
/// each by itself, collectives as tables; what those take longer between compute (`Calibration::in_step`) from
/// `Probes::steps`.
/// Errors: too few ops of a kind, a device without the peak of a precision that was probed.
[[nodiscard]] Result<Calibration> calibrate(const Probes& probes, const ClusterSpec& cluster);

/// The same from ops of ordinary runs alone: what they do not show (collectives, links, interference, experts)
/// stays as in `before`, and so does attention where none ran. Errors: too few products or memory-bound ops, a device
/// without the peak of a precision that ran.
[[nodiscard]] Result<Calibration> recalibrate(const Calibration& before, const Probes& probes,
                                              const ClusterSpec& cluster);

} // namespace foretrain
