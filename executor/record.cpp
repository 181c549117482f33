#include "executor/record.h"

#include "core/program/for_each_op.h"

namespace foretrain {
namespace {

std::string name_of(Segment segment) {
  switch (segment) {
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
  return "?";
}

std::string name_of(Collective collective) {
  switch (collective) {
  case Collective::all_reduce:
    return "all_reduce";
  case Collective::all_gather:
    return "all_gather";
  case Collective::reduce_scatter:
    return "reduce_scatter";
  case Collective::all_to_all:
    return "all_to_all";
  case Collective::broadcast:
    return "broadcast";
  case Collective::ring_exchange:
    return "ring_exchange";
  }
  return "?";
}

std::string name_of(Group group) {
  switch (group) {
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
  return "?";
}

} // namespace

std::string name_of(const Op& op) {
  switch (op.kind) {
  case OpKind::compute:
    return name_of(op.segment);
  case OpKind::collective:
    return name_of(op.collective) + " " + name_of(op.group);
  case OpKind::host_sync:
    return "host_sync";
  case OpKind::copy:
    return "copy";
  }
  return "?";
}

std::string name_of(Pass pass) {
  switch (pass) {
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
  return "?";
}

std::string name_of(InstructionKind kind) {
  switch (kind) {
  case InstructionKind::slot:
    return "slot";
  case InstructionKind::receive:
    return "receive";
  case InstructionKind::send:
    return "send";
  case InstructionKind::wait_receive:
    return "wait_receive";
  case InstructionKind::wait_send:
    return "wait_send";
  case InstructionKind::release_send:
    return "release_send";
  case InstructionKind::step:
    return "step";
  }
  return "?";
}

std::string to_string(const OpPlace& place) {
  if (place.pass == Pass::step && place.position < 0) return "end of the step: " + place.name;
  std::string text = name_of(place.pass) + " of micro-batch " + std::to_string(place.micro_batch) + ", chunk " +
                     std::to_string(place.chunk);
  if (place.position >= 0) text += ", block " + std::to_string(place.position);
  if (place.layer >= 0) text += " (layer " + std::to_string(place.layer) + ")";
  return text + ": " + place.name;
}

Json to_json(const StepRecord& record, bool with_ops) {
  Json json;
  json["step"] = record.step;
  json["rank"] = record.rank;
  json["loss"] = record.loss;
  json["gradient_norm"] = record.gradient_norm;
  json["step_time_s"] = record.seconds;
  if (record.peak_bytes >= 0) json["peak_allocated_bytes"] = record.peak_bytes;
  if (!with_ops) return json;
  Json ops = Json::array();
  for (const OpRecord& op : record.ops) {
    Json entry;
    entry["op"] = op.place.name;
    entry["pass"] = name_of(op.place.pass);
    entry["chunk"] = op.place.chunk;
    entry["micro_batch"] = op.place.micro_batch;
    if (op.place.position >= 0) entry["block"] = op.place.position;
    if (op.place.layer >= 0) entry["layer"] = op.place.layer;
    if (op.bytes > 0) entry["bytes"] = op.bytes;
    entry["start_s"] = op.start;
    entry["end_s"] = op.end;
    ops.push_back(std::move(entry));
  }
  json["ops"] = std::move(ops);
  return json;
}

OpPlace place_of(const Role& role, int instruction) {
  const Instruction& i = role.instructions[static_cast<std::size_t>(instruction)];
  OpPlace place;
  place.instruction = instruction;
  place.pass = i.pass;
  place.chunk = i.chunk;
  place.micro_batch = i.micro_batch;
  place.name = i.kind == InstructionKind::step ? name_of(role.step[static_cast<std::size_t>(i.step)]) : name_of(i.kind);
  return place;
}

std::vector<OpPlace> places_of(const Program& program, const Role& role) {
  std::vector<OpPlace> places;
  for (int index = 0; index < static_cast<int>(role.instructions.size()); ++index) {
    const Instruction& instruction = role.instructions[static_cast<std::size_t>(index)];
    if (instruction.kind != InstructionKind::slot) {
      places.push_back(place_of(role, index));
      continue;
    }
    for_each_op(program, role, instruction, [&](const Op& op, int position, int layer) {
      places.push_back({index, op.pass, instruction.chunk, instruction.micro_batch, position, layer, name_of(op)});
    });
  }
  return places;
}

} // namespace foretrain
