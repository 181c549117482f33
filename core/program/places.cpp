#include "core/program/places.h"

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
  text += ": " + place.name;
  if (place.position < 0) text += " (group pp)"; // a transfer between stages
  return text;
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
  for_each_place(program, role, [&places](OpPlace place, const Op*) { places.push_back(std::move(place)); });
  return places;
}

} // namespace foretrain
