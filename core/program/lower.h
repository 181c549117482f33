#pragma once

#include "core/program/program.h"
#include "core/program/schedules/schedule.h"
#include "core/spec/plan.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// Lowers a legal plan (the planner's rules admit it) to the Program that replay, SimGrid and the executor interpret.
/// Deterministic: equal plans and semantics give equal Programs.
[[nodiscard]] Program lower(const Plan& plan, const Semantics& semantics);

/// Fan-outs of a cluster's tiers, innermost first: what a Mesh needs.
[[nodiscard]] std::vector<int> fanouts_of(const ClusterSpec& cluster);

/// Micro-batches per step and data-parallel rank; the division is exact for legal plans.
[[nodiscard]] int micro_batches_of(const JobSpec& job, const Layout& layout);

/// What the layout's schedule orders, without the weights that schedules by cost ask for.
[[nodiscard]] ScheduleShape schedule_shape(const JobSpec& job, const Layout& layout);

/// Parts in which tp ranks send what passes between stages (`Semantics::p2p_parts`); 1: each sends all of its own.
[[nodiscard]] int boundary_parts(const Semantics& semantics, const Layout& layout);

/// Whether stages end the step without waiting for one another: the optimizer steps before the global norm is known
/// (Qi et al. 2023, arXiv:2401.10241, section 4), under schedules that split the backward.
[[nodiscard]] bool post_validates(const Semantics& semantics, const Layout& layout, bool split_backward);

/// (reserved - allocated) / allocated of the framework's allocator for such a run.
[[nodiscard]] double fragmentation_share(const ModelSpec& model, const JobSpec& job, const Semantics& semantics,
                                         const Layout& layout);

} // namespace foretrain
