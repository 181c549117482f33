#include "core/base/check.h"
#include "executor/kernels/experts.h"
#include "executor/segment_run.h"

namespace foretrain {

Routing& SegmentRun::routing() const {
  return state_.routing[static_cast<std::size_t>(layer_inside())];
}

/// Experts for each token by its place in the global batch: every expert gets equally many, in every layout.
std::vector<std::int64_t> SegmentRun::forced_choice(std::int64_t rows, std::int64_t k) const {
  if (!context_.forced_routing) return {};
  const std::vector<std::int64_t>& own = (*context_.positions)[static_cast<std::size_t>(context_.cp_index)];
  const auto held = static_cast<std::int64_t>(own.size());
  const std::int64_t first = context_.sequence_parallel ? context_.tp_index * rows : 0;
  std::vector<std::int64_t> experts;
  for (std::int64_t row = first; row < first + rows; ++row) {
    const std::int64_t token = context_.first_token + row / held * context_.plan->job.sequence_length +
                               own[static_cast<std::size_t>(row % held)];
    for (std::int64_t i = 0; i < k; ++i) experts.push_back((token * k + i) % model_.moe->experts);
  }
  return experts;
}

/// Where all tokens of a group are gathered only the copies for this rank's experts are taken.
const kernels::SortedCopies& SegmentRun::copies(const Tensor& choice) const {
  std::optional<kernels::SortedCopies>& sorted = routing().sorted;
  if (sorted) return *sorted; // a choice is made once, whatever is recomputed
  const Layout& l = context_.plan->layout;
  const std::int64_t experts = model_.moe->experts;
  const bool gathers = l.expert_dispatch.kind == DispatchKind::all_gather && l.ep * l.etp > 1;
  sorted = gathers ? kernels_.sort_copies(choice, experts / l.ep * context_.ep_index, experts / l.ep)
                   : kernels_.sort_copies(choice, 0, experts);
  return *sorted;
}

void SegmentRun::router() {
  if (forward()) {
    kernels_.route(read(0), weight().weight, forced_choice(read(0).size(0), model_.moe->top_k), write(0), write(1));
  } else if (op_.pass == Pass::weight) {
    kernels::add_router_weight_gradient(read(0), read(1), weight().gradient);
  } else if (op_.weights.empty()) {
    kernels_.route_backward(read(0), read(1), read(2), write(0));
  } else {
    kernels::add_router_input_gradient(read(0), weight().weight, write(0));
  }
}

/// Arrived rows in the order of experts: where each of them stands among the rows as they came.
std::vector<std::int64_t> SegmentRun::arrival_order() const {
  const Routing& here = routing();
  std::vector<std::int64_t> order;
  for (std::size_t expert = 0; expert < here.per_expert.size(); ++expert) {
    std::int64_t start = 0;
    for (const std::vector<std::int64_t>& source : here.arrived) {
      std::int64_t row = start;
      for (std::size_t before = 0; before < source.size(); ++before) {
        if (before == expert)
          for (std::int64_t i = 0; i < source[before]; ++i) order.push_back(row + i);
        row += source[before];
      }
      start = row;
    }
  }
  return order;
}

void SegmentRun::permute() {
  const std::int64_t k = model_.moe->top_k;
  const bool by_arrival = op_.reads.size() == 2; // rows and weights, no choice
  if (by_arrival) {
    const std::vector<std::int64_t> order = arrival_order();
    kernels_.reorder(read(0), order, !forward(), write(0));
    kernels_.reorder(read(1), order, !forward(), write(1));
    return;
  }
  const kernels::SortedCopies& sorted = copies(read(2));
  if (forward()) {
    kernels_.copy_to_rows(read(0), sorted, k, write(0));
    kernels_.copy_weights(read(1), sorted, write(1));
  } else {
    kernels_.sum_copies(read(0), sorted, k, write(0));
    kernels_.return_weights(read(1), sorted, write(1));
  }
}

void SegmentRun::unpermute() {
  const std::int64_t k = model_.moe->top_k;
  if (op_.reads.size() == 1)
    kernels_.reorder(read(0), arrival_order(), forward(), write(0));
  else if (forward())
    kernels_.sum_copies(read(0), copies(read(1)), k, write(0));
  else
    kernels_.copy_to_rows(read(0), copies(read(1)), k, write(0));
}

void SegmentRun::expert_linear() {
  const std::vector<std::int64_t>& rows = routing().per_expert;
  if (forward())
    kernels::expert_linear(read(0), weight().weight, rows, write(0));
  else if (op_.pass == Pass::weight)
    kernels::expert_weight_gradient(read(0), read(1), rows, weight().gradient);
  else
    kernels::expert_input_gradient(read(0), weight().weight, rows, write(0));
}

void SegmentRun::expert_activation() {
  if (forward())
    kernels_.weighted_activation(read(0), read(1), model_.gated, write(0));
  else
    kernels_.weighted_activation_backward(read(0), read(1), read(2), model_.gated, write(0), write(1));
}

void SegmentRun::count_rows() {
  if (op_.segment != Segment::permute || !forward() || op_.reads.size() != 3) return;
  const Layout& l = context_.plan->layout;
  if (l.expert_dispatch.kind == DispatchKind::all_to_all && l.ep * l.etp > 1) return; // counted by the host's exchange
  routing().per_expert = copies(read(2)).per_expert;
}

void count_rows(const Op& op, BlockState& state, ParameterTable& parameters, SegmentContext& context) {
  SegmentRun(op, state, parameters, context).count_rows();
}

std::int64_t rows_of(const Buffer& buffer, const Routing& routing) {
  const std::string name = base_name(buffer.name);
  const auto starts = [&name](const char* text) { return name.rfind(text, 0) == 0; };
  if (starts("expert.") || starts("dexpert.")) return routing.rows();
  if (!starts("exchanged.") && !starts("dexchanged.")) return buffer.shape.front();
  std::int64_t rows = 0;
  for (const std::int64_t count : routing.receives) rows += count;
  return rows;
}

} // namespace foretrain
