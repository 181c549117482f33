#include "core/base/check.h"
#include "core/program/names.h"
#include "core/program/text.h"
#include "core/spec/io.h"

namespace foretrain {
namespace {

std::string name(std::string_view id) {
  return std::string(id);
}

Json kernel_json(const Kernel& k) {
  Json json = {{"kind", name(id_of(k.kind))}, {"dtype", name(id_of(k.dtype))}};
  if (k.kind != KernelKind::memory) {
    json["m"] = k.m;
    json["n"] = k.n;
    json["k"] = k.k;
    json["batch"] = k.batch;
  }
  if (k.kind == KernelKind::gemm || k.kind == KernelKind::grouped_gemm) json["role"] = name(id_of(k.role));
  if (k.heads > 0) {
    json["heads"] = k.heads;
    json["kv_heads"] = k.kv_heads;
    json["v_dim"] = k.v_dim;
    if (k.parts > 0) json["parts"] = k.parts;
  }
  json["flop"] = k.flop;
  json["bytes"] = k.bytes;
  return json;
}

void add_list(Json& json, const char* key, const std::vector<int>& list) {
  if (!list.empty()) json[key] = list;
}

Json op_json(const Op& op) {
  Json json = {{"kind", name(id_of(op.kind))},
               {"pass", name(id_of(op.pass))},
               {"stream", name(id_of(op.stream))},
               {"part", name(id_of(op.part))}};
  if (op.segment != Segment::none) json["segment"] = name(id_of(op.segment));
  if (op.kind == OpKind::collective) {
    json["collective"] = name(id_of(op.collective));
    json["group"] = name(id_of(op.group));
    json["dtype"] = name(id_of(op.dtype));
    if (op.maximum) json["maximum"] = true;
    if (op.rounds > 1) json["rounds"] = op.rounds;
    if (op.deduplicated > 0) json["deduplicated"] = op.deduplicated;
  }
  if (op.bytes.value > 0) json["bytes"] = op.bytes.value;
  add_list(json, "reads", op.reads);
  add_list(json, "writes", op.writes);
  add_list(json, "allocates", op.allocates);
  add_list(json, "frees", op.frees);
  add_list(json, "waits", op.waits);
  add_list(json, "weights", op.weights);
  add_list(json, "weight_gradients", op.weight_gradients);
  if (op.fills > 0) json["fills"] = op.fills;
  if (op.scratch.value > 0) json["scratch_bytes"] = op.scratch.value;
  Json kernels = Json::array();
  for (const Kernel& kernel : op.kernels) kernels.push_back(kernel_json(kernel));
  if (!kernels.empty()) json["kernels"] = std::move(kernels);
  return json;
}

Json ops_json(const std::vector<Op>& ops) {
  Json list = Json::array();
  for (const Op& op : ops) list.push_back(op_json(op));
  return list;
}

Json block_json(const Block& block) {
  Json json = {{"kind", name(id_of(block.kind))}, {"name", block.name}, {"layers", block.layers}};
  json["parameters"] = Json::array();
  for (const Parameter& p : block.parameters)
    json["parameters"].push_back({{"name", p.name},
                                  {"shape", p.shape},
                                  {"local", p.local},
                                  {"expert", p.expert},
                                  {"replicated_tp", p.replicated_tp},
                                  {"partial_tp", p.partial_tp}});
  json["buffers"] = Json::array();
  for (const Buffer& b : block.buffers)
    json["buffers"].push_back({{"name", b.name},
                               {"scope", name(id_of(b.scope))},
                               {"part", name(id_of(b.part))},
                               {"dtype", name(id_of(b.dtype))},
                               {"shape", b.shape},
                               {"bytes", b.bytes.value}});
  for (const Pass pass : {Pass::forward, Pass::backward, Pass::input, Pass::weight})
    if (!block.ops(pass).empty()) json[name(id_of(pass))] = ops_json(block.ops(pass));
  return json;
}

Json chunk_json(const Chunk& chunk) {
  Json json = {{"index", chunk.index}, {"depth", chunk.depth}, {"blocks", chunk.blocks}, {"layers", chunk.layers}};
  json["between"] = Json::array();
  for (const ChunkOp& op : chunk.between) {
    Json entry = {{"pass", name(id_of(op.pass))},
                  {"position", op.position},
                  {"before", op.before},
                  {"when", name(id_of(op.when))},
                  {"op", op_json(op.op)}};
    if (op.needed_at >= 0) entry["needed_at"] = op.needed_at;
    if (op.waits_for >= 0) entry["waits_for"] = op.waits_for;
    if (op.allocates.value > 0) entry["allocates_bytes"] = op.allocates.value;
    if (op.frees.value > 0) {
      entry["frees_bytes"] = op.frees.value;
      entry["freed_after"] = op.freed_after;
    }
    json["between"].push_back(std::move(entry));
  }
  return json;
}

Json instruction_json(const Instruction& i) {
  Json json = {{"kind", name(id_of(i.kind))}};
  if (i.kind == InstructionKind::step) {
    json["step"] = i.step;
    return json;
  }
  json["pass"] = name(id_of(i.pass));
  json["chunk"] = i.chunk;
  json["micro_batch"] = i.micro_batch;
  if (i.peer != 0) json["peer"] = i.peer;
  if (i.batch >= 0) json["batch"] = i.batch;
  return json;
}

Json role_json(const Role& role) {
  Json json = {{"stage", role.stage}};
  json["chunks"] = Json::array();
  for (const Chunk& chunk : role.chunks) json["chunks"].push_back(chunk_json(chunk));
  json["instructions"] = Json::array();
  for (const Instruction& instruction : role.instructions)
    json["instructions"].push_back(instruction_json(instruction));
  json["step"] = ops_json(role.step);
  json["persistent"] = Json::array();
  for (const Persistent& entry : role.persistent)
    json["persistent"].push_back(
        {{"name", entry.name}, {"part", name(id_of(entry.part))}, {"bytes", entry.bytes.value}});
  json["outside_bytes"] = role.outside.value;
  json["boundary_bytes"] = role.boundary.value;
  return json;
}

} // namespace

Json to_json(const Program& program, std::optional<int> role) {
  FORETRAIN_CHECK(!role || (*role >= 0 && *role < program.stages), "the role is one of the Program's");
  const Mesh& mesh = program.mesh;
  Json json = {{"semantics", program.semantics},         {"stages", program.stages},
               {"micro_batches", program.micro_batches}, {"split_backward", program.split_backward},
               {"blocking_p2p", program.blocking_p2p},   {"post_validation", program.post_validation},
               {"fragmentation", program.fragmentation}};
  json["mesh"] = {{"world", mesh.world()},
                  {"tp", mesh.degree(Axis::tp)},
                  {"cp", mesh.degree(Axis::cp)},
                  {"dp", mesh.degree(Axis::dp)},
                  {"pp", mesh.degree(Axis::pp)},
                  {"ep", mesh.ep()},
                  {"etp", mesh.etp()}};
  json["groups"] = Json::object();
  for (int g = 0; g < kGroups; ++g) {
    const auto group = static_cast<Group>(g);
    if (mesh.size(group) > 1) json["groups"][name(id_of(group))] = mesh.members(group, 0);
  }
  json["blocks"] = Json::array();
  for (const Block& block : program.blocks) json["blocks"].push_back(block_json(block));
  json["roles"] = Json::array();
  for (const Role& each : program.roles)
    if (!role || each.stage == *role) json["roles"].push_back(role_json(each));
  return json;
}

} // namespace foretrain
