#include "core/program/layers/executor_scratch.h"

#include <algorithm>
#include <numeric>

namespace foretrain::layers {
namespace {

/// Bytes that one op takes on top.
class Scratch {
public:
  Scratch(const Block& block, const Op& op, const LayerContext& context)
      : block_(block), op_(op), c_(context), statistic_(bits_of(statistics_dtype(context)) / 8),
        half_(context.width < statistic_) {}

  [[nodiscard]] std::int64_t bytes() const {
    switch (op_.kind) {
    case OpKind::compute:
      return compute();
    case OpKind::collective:
      return transfer();
    case OpKind::host_sync:
    case OpKind::copy:
      return 0;
    }
    return 0;
  }

private:
  [[nodiscard]] const Buffer& buffer(int index) const { return block_.buffers[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const Buffer& read(std::size_t i) const { return buffer(op_.reads[i]); }
  [[nodiscard]] static std::int64_t elements(const Buffer& buffer) {
    return std::accumulate(buffer.shape.begin(), buffer.shape.end(), std::int64_t{1}, std::multiplies<>());
  }
  [[nodiscard]] bool names(const Buffer& buffer, const std::string& base) const {
    const std::size_t slash = buffer.name.rfind('/');
    return (slash == std::string::npos ? buffer.name : buffer.name.substr(slash + 1)) == base;
  }
  [[nodiscard]] bool forward() const { return op_.pass == Pass::forward || op_.pass == Pass::recompute; }

  [[nodiscard]] std::int64_t compute() const {
    switch (op_.segment) {
    case Segment::qkv:
    case Segment::attention_out:
    case Segment::mla_down:
    case Segment::mla_up:
    case Segment::ffn_up:
    case Segment::ffn_down:
    case Segment::shared_up:
    case Segment::shared_down:
    case Segment::head:
    case Segment::expert_up:
    case Segment::expert_down:
    case Segment::mtp_projection:
      return op_.pass == Pass::weight ? product() : 0;
    case Segment::attention:
      return attention();
    case Segment::embedding:
      return positions();
    case Segment::loss:
      return loss();
    case Segment::router:
      return router();
    case Segment::none:
    case Segment::norm:
    case Segment::rope:
    case Segment::activation:
    case Segment::permute:
    case Segment::expert_activation:
    case Segment::unpermute:
    case Segment::shared_activation:
    case Segment::residual:
    case Segment::optimizer:
    case Segment::zero_gradients:
    case Segment::gradient_norm:
    case Segment::linear_mixer:
      return 0;
    }
    return 0;
  }

  /// A half precision weight gradient is made whole, and widened, before it is added in single precision.
  [[nodiscard]] std::int64_t product() const {
    if (!half_) return 0;
    const std::vector<std::int64_t>& x = read(0).shape;
    return (c_.width + statistic_) * x.back() * read(1).shape.back();
  }

  /// Scores of one head and block of queries; backward two of them. Half precision works on copies.
  [[nodiscard]] std::int64_t attention() const {
    if (op_.kernels.size() == 1 && op_.kernels.front().kind == KernelKind::memory) return 0;
    const Kernel& kernel = op_.kernels.front();
    const std::int64_t queries = kernel.m;
    const std::int64_t keys = c_.layout.context_parallel.kind == ContextKind::ulysses ? queries : kernel.m;
    const std::int64_t tile = std::min(kAttentionBlock, queries) * keys;
    const std::int64_t query_elements = queries * kernel.batch * kernel.heads;
    const std::int64_t key_elements = keys * kernel.batch * kernel.kv_heads * (kernel.k + kernel.v_dim);
    if (forward())
      return half_ ? statistic_ * (tile + query_elements * (kernel.k + kernel.v_dim) + key_elements) : c_.width * tile;
    return half_ ? statistic_ * (2 * tile + 2 * query_elements * (kernel.k + kernel.v_dim) + 2 * key_elements)
                 : c_.width * 2 * tile;
  }

  /// Learned positions are looked up by rows of integers.
  [[nodiscard]] std::int64_t positions() const {
    const bool looks_up = c_.model->learned_positions > 0 && (op_.pass == Pass::weight || !op_.reads.empty());
    return looks_up ? 8 * c_.tokens : 0;
  }

  /// Exponentials of some rows; without tensor parallelism also the three statistics of all rows.
  [[nodiscard]] std::int64_t loss() const {
    const Buffer& logits = read(0);
    const std::int64_t rows = logits.shape.front();
    const std::int64_t columns = logits.shape.back();
    const std::int64_t at_once = std::min(rows, std::max<std::int64_t>(1, kLossBlock / columns)) * columns;
    const Buffer& written = buffer(op_.writes.front());
    if (names(written, "loss.maximum")) return 0;
    if (names(written, "loss.sums")) return statistic_ * at_once;
    if (op_.reads.size() == 1) return statistic_ * (at_once + 3 * rows);
    return half_ ? statistic_ * at_once : 0;
  }

  [[nodiscard]] std::int64_t router() const {
    const std::int64_t scores = c_.tokens_sp * c_.model->moe->experts;
    if (forward()) return scores * (c_.width + (half_ ? statistic_ : 0));
    if (!half_ || op_.reads.size() == 3) return 0;
    return c_.width * (scores + (op_.pass == Pass::weight ? c_.model->moe->experts * c_.model->hidden : 0));
  }

  /// What the others send before it is added up, or heads gathered for an exchange.
  [[nodiscard]] std::int64_t transfer() const {
    const std::int64_t ranks = group_size();
    std::int64_t most = 0;
    switch (op_.collective) {
    case Collective::reduce_scatter:
      for (const int index : op_.writes) most = std::max(most, buffer(index).bytes.value);
      return most * (op_.group == Group::etp ? ranks : ranks - 1);
    case Collective::all_to_all:
      if (op_.group == Group::ep) return 0;
      for (const int index : op_.reads) most = std::max(most, buffer(index).bytes.value);
      return most / ranks * (ranks - 1);
    case Collective::all_reduce: // half precision is added in single precision
      return op_.dtype == DType::bf16 ? 2 * buffer(op_.writes.front()).bytes.value : 0;
    case Collective::all_gather:
    case Collective::broadcast:
    case Collective::ring_exchange:
      return 0;
    }
    return 0;
  }

  [[nodiscard]] std::int64_t group_size() const {
    switch (op_.group) {
    case Group::tp:
      return c_.layout.tp;
    case Group::etp:
      return c_.layout.etp;
    case Group::ep_etp:
      return std::int64_t{c_.layout.ep} * c_.layout.etp;
    case Group::cp:
    case Group::cp_inner:
    case Group::cp_outer:
    case Group::pp:
    case Group::ep:
    case Group::data:
    case Group::shard:
    case Group::replicate:
    case Group::expert_data:
    case Group::expert_shard:
    case Group::embedding:
    case Group::world:
      return c_.layout.cp;
    }
    return 1;
  }

  const Block& block_;
  const Op& op_;
  const LayerContext& c_;
  std::int64_t statistic_;
  bool half_;
};

} // namespace

void set_executor_scratch(Block& block, const LayerContext& context) {
  for (std::vector<Op>* list : {&block.forward, &block.backward, &block.input, &block.weight})
    for (Op& op : *list) op.scratch = Bytes(Scratch(block, op, context).bytes());
}

} // namespace foretrain::layers
