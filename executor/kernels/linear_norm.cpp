#include "executor/kernels/kernels.h"

namespace foretrain::kernels {

void norm(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y, Tensor& statistics) {
  if (!bias) {
    const Tensor scale = (x.square().mean(-1) + kNormEpsilon).rsqrt();
    statistics.select(0, 0).copy_(scale);
    at::mul_out(y, x, scale.unsqueeze(-1));
    y.mul_(weight);
    return;
  }
  const Tensor mean = x.mean(-1);
  at::sub_out(y, x, mean.unsqueeze(-1));
  const Tensor scale = (y.square().mean(-1) + kNormEpsilon).rsqrt();
  statistics.select(0, 0).copy_(mean);
  statistics.select(0, 1).copy_(scale);
  y.mul_(scale.unsqueeze(-1)).mul_(weight).add_(*bias);
}

void norm_backward(const Tensor& x, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                   const Tensor* residual, Tensor& dx, Tensor& dweight, Tensor* dbias) {
  const Tensor scale = statistics.select(0, dbias ? 1 : 0).to(x.scalar_type()).unsqueeze(-1);
  const Tensor centred = dbias ? x - statistics.select(0, 0).to(x.scalar_type()).unsqueeze(-1) : x;
  const Tensor unit = centred * scale; // the normalised input
  dweight.add_((dy * unit).sum(0));
  if (dbias) dbias->add_(dy.sum(0));
  at::mul_out(dx, dy, weight);
  const Tensor along = (dx * unit).mean(-1, true); // the share of the gradient that changes the row's length
  if (dbias) dx.sub_(dx.mean(-1, true));
  dx.sub_(unit * along).mul_(scale);
  if (residual) dx.add_(*residual);
}

void linear(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y) {
  if (bias)
    at::addmm_out(y, *bias, x, weight.t());
  else
    at::mm_out(y, x, weight.t());
}

void linear_input_gradient(const Tensor& dy, const Tensor& weight, Tensor& dx) {
  at::mm_out(dx, dy, weight);
}

void linear_weight_gradient(const Tensor& x, const Tensor& dy, Tensor& dweight, Tensor* dbias) {
  dweight.addmm_(dy.t(), x);
  if (dbias) dbias->add_(dy.sum(0));
}

} // namespace foretrain::kernels
