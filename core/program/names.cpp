#include "core/program/names.h"

#include <algorithm>

namespace foretrain {

std::string_view id_of(Stream value) {
  switch (value) {
  case Stream::compute:
    return "compute";
  case Stream::tp:
    return "tp";
  case Stream::cp:
    return "cp";
  case Stream::ep:
    return "ep";
  case Stream::gradients:
    return "gradients";
  case Stream::parameters:
    return "parameters";
  case Stream::p2p_forward:
    return "p2p-forward";
  case Stream::p2p_backward:
    return "p2p-backward";
  case Stream::host:
    return "host";
  }
  return "";
}

std::string_view id_of(OpKind value) {
  switch (value) {
  case OpKind::compute:
    return "compute";
  case OpKind::collective:
    return "collective";
  case OpKind::host_sync:
    return "host-sync";
  case OpKind::copy:
    return "copy";
  }
  return "";
}

std::string_view id_of(Segment value) {
  switch (value) {
  case Segment::none:
    return "none";
  case Segment::embedding:
    return "embedding";
  case Segment::norm:
    return "norm";
  case Segment::qkv:
    return "qkv";
  case Segment::rope:
    return "rope";
  case Segment::attention:
    return "attention";
  case Segment::attention_out:
    return "attention_out";
  case Segment::mla_down:
    return "mla_down";
  case Segment::mla_up:
    return "mla_up";
  case Segment::ffn_up:
    return "ffn_up";
  case Segment::activation:
    return "activation";
  case Segment::ffn_down:
    return "ffn_down";
  case Segment::router:
    return "router";
  case Segment::permute:
    return "permute";
  case Segment::expert_up:
    return "expert_up";
  case Segment::expert_activation:
    return "expert_activation";
  case Segment::expert_down:
    return "expert_down";
  case Segment::unpermute:
    return "unpermute";
  case Segment::shared_up:
    return "shared_up";
  case Segment::shared_activation:
    return "shared_activation";
  case Segment::shared_down:
    return "shared_down";
  case Segment::residual:
    return "residual";
  case Segment::head:
    return "head";
  case Segment::loss:
    return "loss";
  case Segment::mtp_projection:
    return "mtp_projection";
  case Segment::optimizer:
    return "optimizer";
  case Segment::zero_gradients:
    return "zero_gradients";
  case Segment::gradient_norm:
    return "gradient_norm";
  case Segment::linear_mixer:
    return "linear_mixer";
  }
  return "";
}

std::string_view id_of(Collective value) {
  switch (value) {
  case Collective::all_reduce:
    return "all-reduce";
  case Collective::all_gather:
    return "all-gather";
  case Collective::reduce_scatter:
    return "reduce-scatter";
  case Collective::all_to_all:
    return "all-to-all";
  case Collective::broadcast:
    return "broadcast";
  case Collective::ring_exchange:
    return "ring-exchange";
  }
  return "";
}

std::string_view id_of(KernelKind value) {
  switch (value) {
  case KernelKind::gemm:
    return "gemm";
  case KernelKind::grouped_gemm:
    return "grouped-gemm";
  case KernelKind::attention_forward:
    return "attention-forward";
  case KernelKind::attention_backward:
    return "attention-backward";
  case KernelKind::memory:
    return "memory";
  }
  return "";
}

std::string_view id_of(GemmRole value) {
  switch (value) {
  case GemmRole::forward:
    return "forward";
  case GemmRole::input_gradient:
    return "input-gradient";
  case GemmRole::weight_gradient:
    return "weight-gradient";
  }
  return "";
}

std::string_view id_of(BufferScope value) {
  switch (value) {
  case BufferScope::block:
    return "block";
  case BufferScope::input:
    return "input";
  case BufferScope::output:
    return "output";
  case BufferScope::grad_output:
    return "grad_output";
  case BufferScope::grad_input:
    return "grad_input";
  }
  return "";
}

std::string_view id_of(BlockKind value) {
  switch (value) {
  case BlockKind::embedding:
    return "embedding";
  case BlockKind::layer:
    return "layer";
  case BlockKind::head:
    return "head";
  case BlockKind::mtp:
    return "mtp";
  }
  return "";
}

std::string_view id_of(When value) {
  switch (value) {
  case When::every:
    return "every";
  case When::first_micro_batch:
    return "first-micro-batch";
  case When::last_micro_batch:
    return "last-micro-batch";
  }
  return "";
}

std::string_view id_of(InstructionKind value) {
  switch (value) {
  case InstructionKind::slot:
    return "slot";
  case InstructionKind::receive:
    return "receive";
  case InstructionKind::send:
    return "send";
  case InstructionKind::wait_receive:
    return "wait-receive";
  case InstructionKind::wait_send:
    return "wait-send";
  case InstructionKind::release_send:
    return "release-send";
  case InstructionKind::step:
    return "step";
  }
  return "";
}

std::string_view id_of(Pass value) {
  switch (value) {
  case Pass::forward:
    return "forward";
  case Pass::backward:
    return "backward";
  case Pass::input:
    return "input";
  case Pass::weight:
    return "weight";
  case Pass::recompute:
    return "recompute";
  case Pass::step:
    return "step";
  }
  return "";
}

std::string_view id_of(Group value) {
  switch (value) {
  case Group::tp:
    return "tp";
  case Group::cp:
    return "cp";
  case Group::cp_inner:
    return "cp_inner";
  case Group::cp_outer:
    return "cp_outer";
  case Group::pp:
    return "pp";
  case Group::ep:
    return "ep";
  case Group::etp:
    return "etp";
  case Group::ep_etp:
    return "ep_etp";
  case Group::data:
    return "data";
  case Group::shard:
    return "shard";
  case Group::replicate:
    return "replicate";
  case Group::expert_data:
    return "expert_data";
  case Group::expert_shard:
    return "expert_shard";
  case Group::embedding:
    return "embedding";
  case Group::world:
    return "world";
  }
  return "";
}

std::string words_of(std::string_view id) {
  std::string words(id);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

} // namespace foretrain
