#include "executor/kernels/kernel_set.h"

#include "executor/kernels/tensor_kernels.h"

namespace foretrain::kernels {
namespace {

void add_host_loss(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                   const Vocabulary& vocabulary, double scale, LossSum& loss) {
  loss.host += loss_gradient(logits, maximum, sums, targets, vocabulary, scale);
}

} // namespace

const KernelSet& host_kernels() {
  static constexpr KernelSet kSet = {
      .norm = &norm,
      .norm_backward = &norm_backward,
      .add_bias_gradient = &add_bias_gradient,
      .rope = &rope,
      .rope_backward = &rope_backward,
      .attention = &attention,
      .attention_backward = &attention_backward,
      .activation_backward = &activation_backward,
      .embedding = &embedding,
      .add_rows = &add_rows,
      .embedding_weight_gradient = &embedding_weight_gradient,
      .loss_maximum = &loss_maximum,
      .loss_sums = &loss_sums,
      .loss_gradient = &add_host_loss,
      .sort_copies = &sort_copies,
      .route = &route,
      .route_backward = &route_backward,
      .copy_to_rows = &copy_to_rows,
      .copy_weights = &copy_weights,
      .sum_copies = &sum_copies,
      .return_weights = &return_weights,
      .reorder = &reorder,
      .weighted_activation = &weighted_activation,
      .weighted_activation_backward = &weighted_activation_backward,
      .head_squares = &head_squares,
      .head_norm = &head_norm,
      .head_products = &head_products,
      .head_norm_backward = &head_norm_backward,
      .latent_norm = &latent_norm,
      .latent_norm_backward = &latent_norm_backward,
      .latent_rope = &latent_rope,
      .latent_rope_backward = &latent_rope_backward,
  };
  return kSet;
}

const KernelSet& tensor_kernels() {
  static constexpr KernelSet kSet = {
      .norm = &tensors::norm,
      .norm_backward = &tensors::norm_backward,
      .add_bias_gradient = &tensors::add_bias_gradient,
      .rope = &tensors::rope,
      .rope_backward = &tensors::rope_backward,
      .attention = &tensors::attention,
      .attention_backward = &tensors::attention_backward,
      .activation_backward = &tensors::activation_backward,
      .embedding = &tensors::embedding,
      .add_rows = &tensors::add_rows,
      .embedding_weight_gradient = &tensors::embedding_weight_gradient,
      .loss_maximum = &tensors::loss_maximum,
      .loss_sums = &tensors::loss_sums,
      .loss_gradient = &tensors::loss_gradient,
      .sort_copies = &tensors::sort_copies,
      .route = &tensors::route,
      .route_backward = &tensors::route_backward,
      .copy_to_rows = &tensors::copy_to_rows,
      .copy_weights = &tensors::copy_weights,
      .sum_copies = &tensors::sum_copies,
      .return_weights = &tensors::return_weights,
      .reorder = &tensors::reorder,
      .weighted_activation = &tensors::weighted_activation,
      .weighted_activation_backward = &tensors::weighted_activation_backward,
      .head_squares = &tensors::head_squares,
      .head_norm = &tensors::head_norm,
      .head_products = &tensors::head_products,
      .head_norm_backward = &tensors::head_norm_backward,
      .latent_norm = &tensors::latent_norm,
      .latent_norm_backward = &tensors::latent_norm_backward,
      .latent_rope = &tensors::latent_rope,
      .latent_rope_backward = &tensors::latent_rope_backward,
  };
  return kSet;
}

} // namespace foretrain::kernels
