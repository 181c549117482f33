#pragma once

#include <ATen/ATen.h>

#include "executor/kernels/experts.h"
#include "executor/kernels/head_norm.h"
#include "executor/kernels/kernels.h"
#include "executor/kernels/latent.h"

namespace foretrain::kernels {

/// The sum of losses, where the kernels compute it: what a device adds up is read once, at the end of a step.
struct LossSum {
  double host = 0;
  Tensor device; ///< [1], fp64; undefined: nothing was added there
  /// Waits for the device.
  [[nodiscard]] double value() const { return host + (device.defined() ? device.item<double>() : 0); }
};

/// The kernels that depend on where tensors are; what LibTorch alone does (products) is in kernels.h and experts.h.
/// Every member has the contract of the function of its name.
struct KernelSet {
  decltype(&kernels::norm) norm;
  decltype(&kernels::norm_backward) norm_backward;
  decltype(&kernels::add_bias_gradient) add_bias_gradient;
  decltype(&kernels::rope) rope;
  decltype(&kernels::rope_backward) rope_backward;
  decltype(&kernels::attention) attention;
  decltype(&kernels::attention_backward) attention_backward;
  decltype(&kernels::activation_backward) activation_backward;
  decltype(&kernels::embedding) embedding;
  decltype(&kernels::add_rows) add_rows;
  decltype(&kernels::embedding_weight_gradient) embedding_weight_gradient;
  decltype(&kernels::loss_maximum) loss_maximum;
  decltype(&kernels::loss_sums) loss_sums;
  /// Adds to `loss` instead of returning it.
  void (*loss_gradient)(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                        const Vocabulary& vocabulary, double scale, LossSum& loss);

  decltype(&kernels::sort_copies) sort_copies; ///< waits for the device
  decltype(&kernels::route) route;
  decltype(&kernels::route_backward) route_backward;
  decltype(&kernels::copy_to_rows) copy_to_rows;
  decltype(&kernels::copy_weights) copy_weights;
  decltype(&kernels::sum_copies) sum_copies;
  decltype(&kernels::return_weights) return_weights;
  decltype(&kernels::reorder) reorder;
  decltype(&kernels::weighted_activation) weighted_activation;
  decltype(&kernels::weighted_activation_backward) weighted_activation_backward;

  decltype(&kernels::head_squares) head_squares;
  decltype(&kernels::head_norm) head_norm;
  decltype(&kernels::head_products) head_products;
  decltype(&kernels::head_norm_backward) head_norm_backward;

  decltype(&kernels::latent_norm) latent_norm;
  decltype(&kernels::latent_norm_backward) latent_norm_backward;
  decltype(&kernels::latent_rope) latent_rope;
  decltype(&kernels::latent_rope_backward) latent_rope_backward;

  /// dW += dyᵀ x; db += column sums of dy.
  void linear_weight_gradient(const Tensor& x, const Tensor& dy, Tensor& dweight, Tensor* dbias) const {
    add_product(dy, x, dweight);
    if (dbias) add_bias_gradient(dy, *dbias);
  }
};

/// Loops over the host's memory, written by hand.
[[nodiscard]] const KernelSet& host_kernels();
/// The same by LibTorch's operators alone: for any device, and for the host in tests.
[[nodiscard]] const KernelSet& tensor_kernels();

} // namespace foretrain::kernels
