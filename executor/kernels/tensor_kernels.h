#pragma once

#include <vector>

#include "executor/kernels/kernel_set.h"

/// The kernels by LibTorch's operators: no loop over elements and no pointer into a tensor, so that tensors may be in a
/// device's memory. Nothing but `sort_copies` waits for the device. Sums have a fixed order, so that the same seed
/// gives the same bits: gradients of tables are added by sorted index, never by atomic adds.
///
/// Each has the contract of its name in kernels.h, experts.h, head_norm.h or latent.h. What they take beyond their
/// outputs is not what core/program/layers/executor_scratch.cpp says: that is of the host's kernels.
namespace foretrain::kernels::tensors {

/// Query rows at once: as many as keep the scores of all heads within this number of elements.
inline constexpr std::int64_t kScoreElements = 1 << 24;
/// Elements of the logits that are copied at once.
inline constexpr std::int64_t kLogitElements = 1 << 25;
/// Both, for those who want other ones.
struct Limits {
  std::int64_t scores = kScoreElements;
  std::int64_t logits = kLogitElements;
};

/// A list beside the tensors that it is used with: to a device through pinned memory, without waiting.
[[nodiscard]] Tensor placed(const std::vector<std::int64_t>& list, const at::Device& device);
/// In single precision where it is in half; else the tensor itself.
[[nodiscard]] Tensor wide(const Tensor& tensor);

void norm(const Tensor& x, const Tensor& weight, const Tensor* bias, Tensor& y, Tensor& statistics);
void norm_backward(const Tensor& x, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                   const Tensor* residual, Tensor& dx, Tensor& dweight, Tensor* dbias);
void add_bias_gradient(const Tensor& dy, Tensor& dbias);
void rope(const HeadRows& from, const RopeShape& shape, const HeadRows& to);
void rope_backward(const HeadRows& from, const RopeShape& shape, const HeadRows& to);
void attention(const AttentionInputs& in, const AttentionShape& shape, Tensor& out, Tensor& logsumexp);
void attention_backward(const AttentionInputs& in, const AttentionGradients& g, const AttentionShape& shape, Tensor& dq,
                        Tensor& dk, Tensor& dv);
void attention(const AttentionInputs& in, const AttentionShape& shape, Tensor& out, Tensor& logsumexp,
               const Limits& limits);
void attention_backward(const AttentionInputs& in, const AttentionGradients& g, const AttentionShape& shape, Tensor& dq,
                        Tensor& dk, Tensor& dv, const Limits& limits);
void activation_backward(const Tensor& up, const Tensor& dhidden, bool gated, Tensor& dup);
void embedding(const Tensor& ids, const Tensor& table, std::int64_t first, Tensor& rows);
void add_rows(const Tensor& ids, const Tensor& table, Tensor& rows);
void embedding_weight_gradient(const Tensor& ids, const Tensor& drows, std::int64_t first, Tensor& dtable);
void loss_maximum(const Tensor& logits, const Vocabulary& vocabulary, Tensor& maximum);
void loss_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Vocabulary& vocabulary,
               Tensor& sums);
void loss_gradient(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                   const Vocabulary& vocabulary, double scale, LossSum& loss);
void loss_sums(const Tensor& logits, const Tensor& maximum, const Tensor& targets, const Vocabulary& vocabulary,
               Tensor& sums, const Limits& limits);
void loss_gradient(Tensor& logits, const Tensor& maximum, const Tensor& sums, const Tensor& targets,
                   const Vocabulary& vocabulary, double scale, LossSum& loss, const Limits& limits);

[[nodiscard]] SortedCopies sort_copies(const Tensor& choice, std::int64_t first, std::int64_t count);
void route(const Tensor& x, const Tensor& weight, const std::vector<std::int64_t>& forced, Tensor& weights,
           Tensor& choice);
void route_backward(const Tensor& weights, const Tensor& choice, const Tensor& dweights, Tensor& dlogits);
void copy_to_rows(const Tensor& from, const SortedCopies& copies, std::int64_t k, Tensor& to);
void copy_weights(const Tensor& weights, const SortedCopies& copies, Tensor& to);
void sum_copies(const Tensor& rows, const SortedCopies& copies, std::int64_t k, Tensor& to);
void return_weights(const Tensor& rows, const SortedCopies& copies, Tensor& weights);
void reorder(const Tensor& from, const std::vector<std::int64_t>& order, bool back, Tensor& to);
void weighted_activation(const Tensor& up, const Tensor& weights, bool gated, Tensor& hidden);
void weighted_activation_backward(const Tensor& up, const Tensor& weights, Tensor& dhidden, bool gated, Tensor& dup,
                                  Tensor& dweights);

void head_squares(const Tensor& mixed, const HeadNormShape& shape, Tensor& squares);
void head_norm(const Tensor& mixed, const Tensor& weight, const Tensor* bias, const Tensor* squares,
               const HeadNormShape& shape, Tensor& y, Tensor& statistics, Tensor& input);
void head_products(const Tensor& input, const Tensor& weight, const Tensor& dy, Tensor& products);
void head_norm_backward(const Tensor& input, const Tensor& statistics, const Tensor& weight, const Tensor& dy,
                        const Tensor* products, const HeadNormShape& shape, Tensor& dmixed, Tensor& dweight,
                        Tensor* dbias);

void latent_norm(const Tensor& x, const Tensor& weight, Tensor& y);
void latent_norm_backward(const Tensor& x, const Tensor& weight, const Tensor& dy, const Tensor* rest, Tensor& dx,
                          Tensor& dweight);
void latent_rope(const Tensor& queries, const Tensor& keys_values, const Tensor& compressed, const LatentShape& shape,
                 Tensor& q, Tensor& k, Tensor& v);
void latent_rope_backward(const Tensor& dq, const Tensor& dk, const Tensor& dv, const LatentShape& shape,
                          Tensor& dqueries, Tensor& dkeys_values, Tensor& dshared);

} // namespace foretrain::kernels::tensors
