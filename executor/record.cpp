#include "executor/record.h"

#include "core/program/for_each_op.h"
#include "core/program/names.h"

namespace foretrain {
std::string name_of(const Op& op) {
  switch (op.kind) {
  case OpKind::compute:
    return std::string(id_of(op.segment));
  case OpKind::collective:
    return std::string(id_of(op.collective)) + " " + std::string(id_of(op.group));
  case OpKind::host_sync:
  case OpKind::copy:
    return std::string(id_of(op.kind));
  }
  return {};
}

std::string to_string(const OpPlace& place) {
  if (place.pass == Pass::step && place.position < 0) return "end of the step: " + place.name;
  std::string text = std::string(id_of(place.pass)) + " of micro-batch " + std::to_string(place.micro_batch) +
                     ", chunk " + std::to_string(place.chunk);
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
    entry["pass"] = std::string(id_of(op.place.pass));
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
  place.name = i.kind == InstructionKind::step ? name_of(role.step[static_cast<std::size_t>(i.step)])
                                               : std::string(id_of(i.kind));
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
