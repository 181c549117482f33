#include "core/program/layers/linear.h"

#include <algorithm>
#include <cmath>

namespace foretrain::layers {
namespace {

Bytes quantised_bytes(const LayerContext& c, double elements, int copies) {
  return Bytes(std::llround(elements * c.low.activation * copies));
}

double elements_of(std::int64_t rows, std::int64_t columns) {
  return static_cast<double>(rows) * static_cast<double>(columns);
}

/// Weights that are not kept quantised are cast for every product that reads them.
void add_weight_cast(const LayerContext& c, const Linear& linear, std::vector<Kernel>& kernels) {
  if (!linear.low || c.low.cached_weights || c.job->quantised_weights) return;
  const double bytes = static_cast<double>(c.width) * c.low.passes + c.low.weight;
  kernels.push_back(traffic(c, bytes * elements_of(linear.in, linear.out)));
}

bool carries(const LayerContext& c, AdapterTarget target) {
  if (!c.job->lora) return false;
  const std::vector<AdapterTarget>& targets = c.job->lora->targets;
  return std::find(targets.begin(), targets.end(), target) != targets.end();
}

std::optional<Adapter> declare_adapter(BlockBuilder& b, const Parameter& weight, std::int64_t tokens, Split split) {
  const LayerContext& c = b.context();
  Adapter adapter;
  adapter.rank = c.job->lora->rank;
  const std::int64_t tp = split == Split::none ? 1 : c.layout.tp;
  const std::int64_t in = weight.local[1];
  const std::int64_t out = weight.local[0];
  const std::int64_t whole_in = weight.shape[1];
  const std::int64_t whole_out = weight.shape[0];
  const bool columns = split == Split::columns;
  Parameter down{
      weight.name + ".adapter_down", {adapter.rank, whole_in}, {columns ? adapter.rank / tp : adapter.rank, in}};
  Parameter up{
      weight.name + ".adapter_up", {whole_out, adapter.rank}, {split == Split::rows ? out / tp : out, adapter.rank}};
  down.replicated_tp = up.replicated_tp = split == Split::none;
  adapter.down = b.adapter(std::move(down));
  adapter.up = b.adapter(std::move(up));
  adapter.inner = b.activation(weight.name + ".adapter", {tokens, adapter.rank});
  return adapter;
}

/// x Aᵀ, then its product with B added to the output.
void adapter_forward(BlockBuilder& b, const Linear& linear, int input, int output) {
  const LayerContext& c = b.context();
  const Adapter& a = *linear.adapter;
  b.compute(linear.segment, {input}, {a.inner}, {gemm(c, linear.tokens, a.rank, linear.in)}).weights = {a.down};
  b.compute(linear.segment, {a.inner, output}, {output},
            {gemm(c, linear.tokens, linear.out, a.rank),
             traffic(c, 3 * static_cast<double>(c.width) * elements_of(linear.tokens, linear.out))})
      .weights = {a.up};
}

/// Both weight gradients; the gradient of x Aᵀ between them.
void adapter_weight_gradients(BlockBuilder& b, const Linear& linear, int input, int grad_output) {
  const LayerContext& c = b.context();
  const Adapter& a = *linear.adapter;
  const int grad_inner = b.temporary("d" + b.at(a.inner).name, {linear.tokens, a.rank});
  Op& up = b.compute(linear.segment, {a.inner, grad_output}, {grad_inner},
                     {gemm(c, linear.tokens, linear.out, a.rank, GemmRole::weight_gradient),
                      gemm(c, linear.tokens, a.rank, linear.out, GemmRole::input_gradient)});
  up.weights = {a.up};
  up.weight_gradients = {a.up};
  Op& down = b.compute(linear.segment, {input, grad_inner}, {},
                       {gemm(c, linear.tokens, a.rank, linear.in, GemmRole::weight_gradient)});
  down.weight_gradients = {a.down};
}

} // namespace

Linear declare_linear(BlockBuilder& b, Segment segment, Parameter weight, std::int64_t tokens, Split split,
                      std::optional<AdapterTarget> target) {
  const LayerContext& c = b.context();
  Linear linear;
  linear.segment = segment;
  linear.tokens = tokens;
  linear.out = weight.local[0];
  linear.in = weight.local[1];
  linear.low = c.low.active;
  weight.quantised = linear.low;
  if (target && carries(c, *target)) linear.adapter = declare_adapter(b, weight, tokens, split);
  linear.weight = b.parameter(std::move(weight));
  return linear;
}

bool needs_input(const BlockBuilder& b, const Linear& linear) {
  return b.trains(linear.weight) || linear.adapter.has_value();
}

Kernel quantisation(const LayerContext& c, double elements) {
  const double bytes = static_cast<double>(c.width) * c.low.passes + c.low.activation * c.low.directions;
  return traffic(c, bytes * elements);
}

int kept_buffer(BlockBuilder& b, const Linear& linear, int input, bool shared) {
  const LayerContext& c = b.context();
  if (!linear.low || !c.low.keeps_input || b.at(input).dtype == c.low.type) return input;
  // An adapter reads its input in 16 bits, and the frozen layer needs none.
  if (!b.trains(linear.weight) || (shared && !c.low.own_copy)) return input;
  const std::string name = b.at(input).name + ".quantised";
  return b.quantised(name, b.at(input).shape, MemoryPart::activations);
}

void keep(BlockBuilder& b, const Linear& linear, int input, int kept) {
  if (kept == input) return;
  double elements = 1;
  for (const std::int64_t extent : b.at(input).shape) elements *= static_cast<double>(extent);
  b.compute(linear.segment, {input}, {kept}, {quantisation(b.context(), elements)});
}

bool quantises_norm(const LayerContext& c, std::optional<AdapterTarget> reader) {
  return c.low.active && c.low.keeps_input && !(reader && carries(c, *reader));
}

namespace {

/// Tokens of a piece; pieces differ by one at most.
std::int64_t tokens_of(const Linear& linear, Piece p) {
  return linear.tokens * (p.piece + 1) / p.pieces - linear.tokens * p.piece / p.pieces;
}

/// What a piece reads: later ones add to an output that is already there.
std::vector<int> operands(int input, int output, Piece p) {
  return p.piece == 0 ? std::vector<int>{input} : std::vector<int>{input, output};
}

void forward(BlockBuilder& b, const Linear& linear, int input, int output, Piece piece) {
  const LayerContext& c = b.context();
  const std::int64_t tokens = tokens_of(linear, piece);
  const bool casts = linear.low && b.at(input).dtype != c.low.type;
  const double elements = elements_of(tokens, linear.in);
  std::vector<Kernel> kernels;
  if (casts) kernels.push_back(quantisation(c, elements));
  if (piece.piece == 0) add_weight_cast(c, linear, kernels);
  kernels.push_back(gemm(c, tokens, linear.out, linear.in, GemmRole::forward, linear.low));
  Op& op = b.compute(linear.segment, operands(input, output, piece), {output}, std::move(kernels));
  if (linear.weight >= 0) op.weights = {linear.weight};
  if (casts) op.scratch = quantised_bytes(c, elements, 1);
  if (linear.adapter) adapter_forward(b, linear, input, output);
}

void input_gradient(BlockBuilder& b, const Linear& linear, int grad_output, int grad_input, Piece piece) {
  const LayerContext& c = b.context();
  const std::int64_t tokens = tokens_of(linear, piece);
  const double elements = elements_of(tokens, linear.out);
  const bool casts = linear.low && b.at(grad_output).dtype != c.low.type;
  std::vector<Kernel> kernels;
  if (casts) kernels.push_back(quantisation(c, elements));
  if (piece.piece == 0) add_weight_cast(c, linear, kernels);
  if (piece.piece == 0 && linear.low && c.job->quantised_weights && !b.trains(linear.weight) && c.low.directions > 1)
    kernels.push_back(traffic(c, 2 * c.low.weight * elements_of(linear.in, linear.out))); // transposed for this product
  kernels.push_back(gemm(c, tokens, linear.in, linear.out, GemmRole::input_gradient, linear.low));
  if (linear.adapter) {
    kernels.push_back(gemm(c, linear.tokens, linear.in, linear.adapter->rank, GemmRole::input_gradient));
    kernels.push_back(traffic(c, 3 * static_cast<double>(c.width) * elements_of(linear.tokens, linear.in)));
  }
  Op& op = b.compute(linear.segment, operands(grad_output, grad_input, piece), {grad_input}, std::move(kernels));
  if (linear.weight >= 0) op.weights = {linear.weight};
  if (linear.low) op.scratch = quantised_bytes(c, elements, c.low.directions - (casts ? 0 : 1));
}

/// An adapter is added to the whole output.
bool in_pieces(const BlockBuilder& b, const Linear& linear) {
  return tensor::in_pieces(b.context()) && !linear.adapter;
}

} // namespace

void linear_forward(BlockBuilder& b, const Linear& linear, int input, int output) {
  forward(b, linear, input, output, {});
}

void linear_input_gradient(BlockBuilder& b, const Linear& linear, int grad_output, int grad_input) {
  input_gradient(b, linear, grad_output, grad_input, {});
}

tensor::Entry begin_column(BlockBuilder& b, const Linear& linear, int shard, const std::string& name) {
  const bool recomputes_parts = b.context().layout.recompute.kind == RecomputeKind::operators;
  return tensor::begin_enter(b, shard, name, linear.in, in_pieces(b, linear) && !recomputes_parts);
}

void column_forward(BlockBuilder& b, const Linear& linear, const tensor::Entry& entry, int output, std::int64_t kept) {
  if (!entry.pieces) {
    forward_keeping(b, linear, entry.whole, output, kept);
    return;
  }
  const int pieces = b.context().layout.tp;
  for (int i = 0; i < pieces; ++i) {
    if (i > 0) tensor::gather_piece(b, entry, i == 1);
    forward(b, linear, i == 0 ? entry.shard : entry.whole, output, {i, pieces});
  }
}

int row_forward(BlockBuilder& b, const Linear& linear, int input, int partial, const std::string& name,
                std::int64_t kept) {
  if (!in_pieces(b, linear) || kept > 0) {
    forward_keeping(b, linear, input, partial, kept);
    return tensor::leave(b, partial, name, linear.out);
  }
  const int share = tensor::declare_share(b, name, linear.out);
  for (int i = 0; i < tensor::kPiecesOfReduction; ++i) {
    forward(b, linear, input, partial, {i, tensor::kPiecesOfReduction});
    tensor::reduce_piece(b, partial, share, linear.out, i == 0);
  }
  return share;
}

tensor::Entry begin_row_backward(BlockBuilder& b, const Linear& linear, int grad_shard, const std::string& name) {
  return tensor::begin_enter_backward(b, grad_shard, name, linear.out, linear.low, in_pieces(b, linear));
}

void row_input_gradient(BlockBuilder& b, const Linear& linear, const tensor::Entry& entry, int grad_input) {
  const int pieces = entry.pieces ? b.context().layout.tp : 1;
  for (int i = 0; i < pieces; ++i) {
    if (i > 0) tensor::gather_piece(b, entry, i == 1);
    input_gradient(b, linear, i == 0 && entry.pieces ? entry.shard : entry.whole, grad_input, {i, pieces});
  }
}

Bytes sum_gradient(const LayerContext& c, double weights, Op& op) {
  if (!(c.gradient_sum > 0)) return Bytes(0);
  op.kernels.push_back(traffic(c, c.gradient_sum * weights));
  op.kernels.back().heads = 1; // one large operator: nothing is lost beyond what it moves, as over scores
  return Bytes(std::llround(static_cast<double>(c.width) * weights));
}

void linear_weight_gradient(BlockBuilder& b, const Linear& linear, int input, int grad_output) {
  if (!needs_input(b, linear)) return;
  in_weight_pass(b, [&] {
    const LayerContext& c = b.context();
    if (linear.adapter) adapter_weight_gradients(b, linear, input, grad_output);
    if (!b.trains(linear.weight)) return;
    const double elements = elements_of(linear.tokens, linear.in);
    const bool casts = linear.low && b.at(input).dtype != c.low.type;
    std::vector<Kernel> kernels;
    if (casts) kernels.push_back(quantisation(c, elements));
    kernels.push_back(gemm(c, linear.tokens, linear.out, linear.in, GemmRole::weight_gradient, linear.low));
    Op& op = b.compute(linear.segment, {input, grad_output}, {}, std::move(kernels));
    op.weight_gradients = {linear.weight};
    // The quantised gradient of the output, transposed where the products need it so, outlives the input gradient.
    if (linear.low)
      op.scratch = quantised_bytes(c, elements_of(linear.tokens, linear.out), 1) +
                   (casts ? quantised_bytes(c, elements, 1) : Bytes(0));
    op.scratch += sum_gradient(c, elements_of(linear.in, linear.out), op);
  });
}

bool keeps_output(const LayerContext& c, KeptOutput output) {
  if (c.layout.recompute.kind != RecomputeKind::operators) return false;
  const auto has = [output](const std::vector<KeptOutput>& list) {
    return std::find(list.begin(), list.end(), output) != list.end();
  };
  return has(c.semantics->operators_kept) && !(c.job->compiled && has(c.semantics->compiled_drops));
}

void forward_keeping(BlockBuilder& b, const Linear& linear, int input, int output, std::int64_t kept) {
  if (kept == 0) {
    linear_forward(b, linear, input, output);
    return;
  }
  const int stays = b.activation(b.at(output).name + ".kept", {linear.tokens, kept});
  if (b.pass() == Pass::forward) {
    linear_forward(b, linear, input, output);
    b.compute(linear.segment, {output}, {stays}, {}); // columns of the output itself: nothing is copied
    return;
  }
  Linear rest = linear;
  rest.out -= kept;
  if (rest.out == 0) {
    b.compute(linear.segment, {stays}, {output}, {});
    return;
  }
  linear_forward(b, rest, input, output);
  b.compute(linear.segment, {stays, output}, {output}, {});
}

bool eager_operators(const LayerContext& context) {
  return context.semantics->eager_gate_copy && !context.job->compiled;
}

bool recomputes(const LayerContext& context, RecomputeModule module) {
  const RecomputeChoice& choice = context.layout.recompute;
  return choice.kind == RecomputeKind::selective &&
         std::find(choice.modules.begin(), choice.modules.end(), module) != choice.modules.end();
}

} // namespace foretrain::layers
