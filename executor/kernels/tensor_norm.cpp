#include <cstring>

#include "executor/kernels/tensor_kernels.h"

/// Norms (of heads too), rotary positions, latent attention's own parts, gradients of activations.
namespace foretrain::kernels::tensors {
namespace {

/// A column of numbers, one per row.
Tensor column(const Tensor& numbers) {
  return numbers.unsqueeze(1);
}

Tensor inverse_length(const Tensor& rows) {
  return (rows.square().mean(-1, true) + kNormEpsilon).rsqrt();
}

struct Turns {
  Tensor cosines; ///< [1, positions, 1, half]
  Tensor sines;
};
Turns turns_of(const Tensor& turns, bool back) {
  const std::int64_t length = turns.size(1);
  const std::int64_t half = turns.size(2);
  const Tensor sines = turns.select(0, 1).view({1, length, 1, half});
  return {turns.select(0, 0).view({1, length, 1, half}), back ? sines.neg() : sines};
}

/// [rows, heads, width] → [sequences, positions, heads, 2, half]; its two halves are the coordinates.
Tensor halves_of(const Tensor& heads, std::int64_t length) {
  return heads.unflatten(-1, at::IntArrayRef{2, heads.size(-1) / 2}).unflatten(0, at::IntArrayRef{-1, length});
}

/// Writes turned heads; `from` may be `to`.
void turn(const Tensor& from, Tensor to, const Tensor& turns, bool back) {
  const Turns t = turns_of(turns, back);
  const std::int64_t length = turns.size(1);
  const Tensor in = halves_of(from, length);
  Tensor out = halves_of(to, length);
  const Tensor x = wide(in.select(3, 0));
  const Tensor y = wide(in.select(3, 1));
  const Tensor first = x * t.cosines - y * t.sines;
  const Tensor second = y * t.cosines + x * t.sines;
  out.select(3, 0).copy_(first);
  out.select(3, 1).copy_(second);
}

/// Heads of rows of [… | count heads of this width | …].
Tensor heads_of(const Tensor& rows, std::int64_t first, std::int64_t count, std::int64_t width) {
  return rows.narrow(1, first, count * width).unflatten(1, at::IntArrayRef{count, width});
}

/// The heads of each part, turned or copied.
void turn_parts(const HeadRows& from, const RopeShape& shape, const HeadRows& to, bool back) {
  const auto heads = [&](const Tensor& rows, std::int64_t count) { return heads_of(rows, 0, count, shape.width); };
  const auto turn_or_copy = [&](const Tensor& in, Tensor out) {
    if (shape.turns.defined())
      turn(in, std::move(out), shape.turns, back);
    else
      out.copy_(in);
  };
  turn_or_copy(heads(from.q, shape.query), heads(to.q, shape.query));
  turn_or_copy(heads(from.k, shape.kv), heads(to.k, shape.kv));
  heads(to.v, shape.kv).copy_(heads(from.v, shape.kv));
}

} // namespace

Tensor wide(const Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

Tensor placed(const std::vector<std::int64_t>& list, const at::Device& device) {
  const auto options = at::TensorOptions(at::kLong).pinned_memory(!device.is_cpu());
  const Tensor host = at::empty({static_cast<std::int64_t>(list.size())}, options);
  if (!list.empty()) std::memcpy(host.data_ptr(), list.data(), list.size() * sizeof(std::int64_t));
  return device.is_cpu() ? host : host.to(device, /*non_blocking=*/true); // pinned memory lives until it is copied
}

void norm(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y, Tensor& statistics) {
  const Tensor in = wide(x);
  const Tensor centred = bias ? in - in.mean(-1, true) : in;
  const Tensor scale = inverse_length(centred);
  if (bias) statistics.select(0, 0).copy_(in.mean(-1));
  statistics.select(0, bias ? 1 : 0).copy_(scale.squeeze(1));
  Tensor out = centred * scale;
  out.mul_(wide(weight));
  if (bias) out.add_(wide(*bias));
  y.copy_(out);
}

void norm_backward(const Tensor& x, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                   const Tensor* residual, Tensor& dx, Tensor& dweight, Tensor* dbias) {
  const Tensor g = wide(dy);
  const Tensor scale = column(statistics.select(0, dbias ? 1 : 0));
  const Tensor in = wide(x);
  const Tensor straight = (dbias ? in - column(statistics.select(0, 0)) : in) * scale; // of length 1
  dweight.add_((g * straight).sum(0));
  if (dbias) dbias->add_(g.sum(0));
  Tensor here = g * wide(weight);
  const Tensor along = (here * straight).mean(-1, true);
  if (dbias) here.sub_(here.mean(-1, true));
  here.sub_(straight * along).mul_(scale);
  if (residual) here.add_(*residual);
  dx.copy_(here);
}

void add_bias_gradient(const Tensor& dy, Tensor& dbias) {
  dbias.add_(wide(dy).sum(0));
}

void head_squares(const Tensor& mixed, const HeadNormShape& shape, Tensor& squares) {
  squares.select(0, 0).copy_(wide(mixed.narrow(1, shape.first, shape.columns)).square().sum(-1));
}

void head_norm(const Tensor& mixed, const Tensor& weight, const Tensor* bias, const Tensor* squares,
               const HeadNormShape& shape, Tensor& y, Tensor& statistics, Tensor& input) {
  input.copy_(mixed.narrow(1, shape.first, shape.columns));
  const Tensor rows = input.view({-1, shape.group});
  Tensor out = y.view({-1, shape.group});
  if (!squares) return norm(rows, weight, bias, out, statistics);
  const Tensor scale = (*squares / static_cast<double>(shape.whole) + kNormEpsilon).rsqrt();
  statistics.copy_(scale);
  out.copy_(wide(rows) * column(scale.select(0, 0)) * wide(weight));
}

void head_products(const Tensor& input, const Tensor& weight, const Tensor& dy, Tensor& products) {
  products.select(0, 0).copy_((wide(dy) * wide(weight) * wide(input)).sum(-1));
}

void head_norm_backward(const Tensor& input, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                        const Tensor* products, const HeadNormShape& shape, Tensor& dmixed, Tensor& dweight,
                        Tensor* dbias) {
  const Tensor rows = input.view({-1, shape.group});
  const Tensor gradient = dy.view({-1, shape.group});
  Tensor to = dmixed.narrow(1, shape.first, shape.columns);
  if (!products) {
    Tensor out = at::empty_like(rows);
    norm_backward(rows, statistics, weight, gradient, nullptr, out, dweight, dbias);
    to.copy_(out.view_as(input));
    return;
  }
  const Tensor g = wide(gradient);
  const Tensor scale = column(statistics.select(0, 0));
  const Tensor straight = wide(rows) * scale; // of length 1, over all ranks
  dweight.add_((g * straight).sum(0));
  const Tensor along = column(products->select(0, 0)) * scale / static_cast<double>(shape.whole);
  to.copy_((g * wide(weight) - straight * along) * scale);
}

void rope(const HeadRows& from, const RopeShape& shape, const HeadRows& to) {
  turn_parts(from, shape, to, false);
}

void rope_backward(const HeadRows& from, const RopeShape& shape, const HeadRows& to) {
  turn_parts(from, shape, to, true);
}

void activation_backward(const Tensor& up, const Tensor& dhidden, bool gated, Tensor& dup) {
  if (!gated) {
    at::gelu_backward_out(dup, dhidden, up);
    return;
  }
  const std::int64_t width = up.size(-1) / 2;
  const Tensor gate = wide(up.narrow(-1, 0, width));
  const Tensor value = wide(up.narrow(-1, width, width));
  const Tensor dh = wide(dhidden);
  const Tensor sigmoid = gate.sigmoid();
  Tensor slope = 1 - sigmoid; // silu'(x) = σ(x) (1 + x (1 − σ(x)))
  slope.mul_(gate).add_(1).mul_(sigmoid);
  dup.narrow(-1, 0, width).copy_(slope.mul_(dh).mul_(value));
  dup.narrow(-1, width, width).copy_(dh * gate * sigmoid);
}

void latent_norm(const Tensor& x, const Tensor& weight, Tensor& y) {
  const Tensor in = wide(x.narrow(1, 0, weight.size(0)));
  y.copy_(in * inverse_length(in) * wide(weight));
}

void latent_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& dy, const Tensor* rest, Tensor& dx,
                          Tensor& dweight) {
  const std::int64_t width = weight.size(0);
  const Tensor in = wide(x.narrow(1, 0, width));
  const Tensor g = wide(dy);
  const Tensor scale = inverse_length(in);
  const Tensor straight = in * scale;
  dweight.add_((g * straight).sum(0));
  Tensor here = g * wide(weight);
  const Tensor along = (here * straight).mean(-1, true);
  here.sub_(straight * along).mul_(scale);
  dx.narrow(1, 0, width).copy_(here);
  if (rest) dx.narrow(1, width, x.size(1) - width).copy_(*rest);
}

void latent_rope(const Tensor& queries, const Tensor& keys_values, const Tensor& compressed, const LatentShape& s,
                 Tensor& q, Tensor& k, Tensor& v) {
  const std::int64_t width = s.plain + s.turned;
  const Tensor from_q = heads_of(queries, 0, s.heads, width);
  const Tensor from_kv = heads_of(keys_values, 0, s.heads, s.plain + s.value);
  Tensor to_q = heads_of(q, 0, s.heads, width);
  Tensor to_k = heads_of(k, 0, s.heads, width);
  to_q.narrow(2, 0, s.plain).copy_(from_q.narrow(2, 0, s.plain));
  turn(from_q.narrow(2, s.plain, s.turned), to_q.narrow(2, s.plain, s.turned), s.turns, false);
  to_k.narrow(2, 0, s.plain).copy_(from_kv.narrow(2, 0, s.plain));
  const Tensor shared = compressed.narrow(1, compressed.size(1) - s.turned, s.turned).unsqueeze(1);
  turn(shared.expand({-1, s.heads, -1}), to_k.narrow(2, s.plain, s.turned), s.turns, false);
  heads_of(v, 0, s.heads, s.value).copy_(from_kv.narrow(2, s.plain, s.value));
}

void latent_rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const LatentShape& s, Tensor& dqueries,
                          Tensor& dkeys_values, Tensor& dshared) {
  const std::int64_t width = s.plain + s.turned;
  const Tensor from_q = heads_of(dq, 0, s.heads, width);
  const Tensor from_k = heads_of(dk, 0, s.heads, width);
  Tensor to_q = heads_of(dqueries, 0, s.heads, width);
  Tensor to_kv = heads_of(dkeys_values, 0, s.heads, s.plain + s.value);
  to_q.narrow(2, 0, s.plain).copy_(from_q.narrow(2, 0, s.plain));
  turn(from_q.narrow(2, s.plain, s.turned), to_q.narrow(2, s.plain, s.turned), s.turns, true);
  to_kv.narrow(2, 0, s.plain).copy_(from_k.narrow(2, 0, s.plain));
  to_kv.narrow(2, s.plain, s.value).copy_(heads_of(dv, 0, s.heads, s.value));
  // All heads have the same turned part, and turning is linear.
  const Tensor sum = wide(from_k.narrow(2, s.plain, s.turned)).sum(1, true);
  turn(sum, dshared.unsqueeze(1), s.turns, true);
}

} // namespace foretrain::kernels::tensors
