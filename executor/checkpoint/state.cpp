#include "executor/checkpoint/state.h"

#include <c10/core/GradMode.h>

#include "core/base/check.h"

namespace foretrain {
namespace {

const std::string kWeight = "weight/";
const std::string kMaster = "master/";

std::string type_of(const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  if (type == at::kDouble) return "F64";
  if (type == at::kFloat) return "F32";
  FORETRAIN_CHECK(type == at::kBFloat16, "check_runnable admits no other types of weights");
  return "BF16";
}

class States {
public:
  States(const Plan& plan, const Mesh& mesh, int rank) : plan_(plan), place_(slice_place(plan, mesh, rank)) {}

  /// `tensor`: the elements [first, first + its own) of the parameter on this rank.
  [[nodiscard]] StatePart part(const std::string& key, const ParameterEntry& entry, const at::Tensor& tensor,
                               std::int64_t first) const {
    StatePart part;
    part.key = key;
    part.type = type_of(tensor);
    part.slice = slice_of(*entry.spec, plan_.model, place_);
    part.shape = {unpadded_rows_of(*entry.spec, plan_.model)};
    if (entry.spec->shape.size() > 1) part.shape.push_back(part.slice.whole_columns);
    part.first = first;
    part.count = tensor.numel();
    part.data = tensor.data_ptr();
    return part;
  }

private:
  const Plan& plan_;
  SlicePlace place_;
};

at::Tensor on_host(const at::Tensor& tensor) {
  FORETRAIN_CHECK(tensor.is_contiguous(), "weights and moments have no gaps");
  return tensor.is_cpu() ? tensor : tensor.cpu();
}

/// Reads into a tensor, wherever it is.
Result<void> read(PieceSource& source, const std::string& key, const States& states, const ParameterEntry& entry,
                  at::Tensor tensor, std::int64_t first) {
  if (tensor.numel() == 0) return {};
  const at::Tensor host = on_host(tensor);
  if (auto filled = source.fill(states.part(key, entry, host, first), key); !filled) return filled;
  if (!tensor.is_cpu()) tensor.copy_(host);
  return {};
}

/// All that this rank holds of a parameter, not only what it updates.
Result<void> read_weight(PieceSource& source, const std::string& key, const States& states,
                         const ParameterEntry& entry) {
  if (entry.weight.defined()) return read(source, key, states, entry, entry.weight.view(-1), 0);
  return read(source, key, states, entry, entry.owned_weight, entry.owned_first);
}

} // namespace

RankState owned_state(const Plan& plan, const Mesh& mesh, int rank, Rank& executor) {
  const States states(plan, mesh, rank);
  RankState list;
  const auto add = [&](const std::string& kind, const ParameterEntry& entry, const at::Tensor& tensor) {
    list.tensors.push_back(on_host(tensor));
    list.parts.push_back(states.part(kind + entry.name, entry, list.tensors.back(), entry.owned_first));
  };
  const std::vector<ParameterEntry>& entries = executor.parameters().entries();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ParameterEntry& entry = entries[i];
    if (!entry.counted || entry.owned_count == 0) continue;
    if (!executor.optimizer().keeps_masters()) add(kWeight, entry, entry.owned_weight);
    for (const Optimizer::State& state : executor.optimizer().state(i))
      add(std::string(state.name) + "/", entry, state.tensor);
  }
  return list;
}

Result<void> restore(PieceSource& source, const Plan& plan, const Mesh& mesh, int rank, int steps, Rank& executor) {
  const c10::NoGradGuard no_gradients;
  const States states(plan, mesh, rank);
  const std::vector<ParameterEntry>& entries = executor.parameters().entries();
  const std::string kind = executor.optimizer().keeps_masters() ? kMaster : kWeight;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ParameterEntry& entry = entries[i];
    if (auto done = read_weight(source, kind + entry.name, states, entry); !done) return done;
    for (const Optimizer::State& state : executor.optimizer().state(i)) {
      const std::string key = std::string(state.name) + "/" + entry.name;
      if (auto done = read(source, key, states, entry, state.tensor, entry.owned_first); !done) return done;
    }
  }
  if (!executor.optimizer().keeps_masters()) executor.optimizer().take_weights(executor.parameters());
  executor.optimizer().set_steps(steps);
  return {};
}

Result<void> restore_weights(PieceSource& source, const Plan& plan, const Mesh& mesh, int rank, Rank& executor) {
  const c10::NoGradGuard no_gradients;
  const States states(plan, mesh, rank);
  for (const ParameterEntry& entry : executor.parameters().entries())
    if (auto done = read_weight(source, kWeight + entry.name, states, entry); !done) return done;
  executor.optimizer().take_weights(executor.parameters());
  return {};
}

} // namespace foretrain
