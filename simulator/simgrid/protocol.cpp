#include "simulator/simgrid/protocol.h"

#include <exception>

#include <fmt/format.h>

#include "core/spec/io.h"

namespace foretrain {
namespace {

Json parts_to_json(const TimeParts& parts) {
  Json out = Json::array();
  for (const Seconds part : parts) out.push_back(part.value);
  return out;
}

TimeParts parts_from(const Json& json) {
  TimeParts parts{};
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = Seconds(json.at(i).get<double>());
  return parts;
}

Json stage_to_json(const StageRun& stage) {
  Json memory = Json::array();
  for (const MemorySample& sample : stage.memory)
    memory.push_back(Json::array({sample.at, sample.allocated.value, sample.peak.value}));
  return {{"finish", stage.finish},   {"compute", stage.compute},
          {"slowed", stage.slowed},   {"parts", parts_to_json(stage.parts)},
          {"peak", stage.peak.value}, {"memory", std::move(memory)}};
}

StageRun stage_from(const Json& json) {
  StageRun stage;
  stage.finish = json.at("finish").get<double>();
  stage.compute = json.at("compute").get<double>();
  stage.slowed = json.at("slowed").get<double>();
  stage.parts = parts_from(json.at("parts"));
  stage.peak = Bytes(json.at("peak").get<std::int64_t>());
  for (const Json& sample : json.at("memory"))
    stage.memory.push_back(
        {sample.at(0).get<double>(), Bytes(sample.at(1).get<std::int64_t>()), Bytes(sample.at(2).get<std::int64_t>())});
  return stage;
}

Json event_to_json(const TimelineEvent& event) {
  return Json::array({event.stage, static_cast<int>(event.lane), static_cast<int>(event.part), event.name, event.start,
                      event.end, event.micro_batch, event.layer});
}

TimelineEvent event_from(const Json& json) {
  TimelineEvent event;
  event.stage = json.at(0).get<int>();
  event.lane = static_cast<Lane>(json.at(1).get<int>());
  event.part = static_cast<TimePart>(json.at(2).get<int>());
  event.name = json.at(3).get<std::string>();
  event.start = json.at(4).get<double>();
  event.end = json.at(5).get<double>();
  event.micro_batch = json.at(6).get<int>();
  event.layer = json.at(7).get<int>();
  return event;
}

Simulation read_simulation(const Json& json) {
  Simulation out;
  out.step_time = Seconds(json.at("step_time_s").get<double>());
  out.time = parts_from(json.at("time"));
  out.critical_stage = json.at("critical_stage").get<int>();
  for (const Json& stage : json.at("stages")) out.stages.push_back(stage_from(stage));
  for (const Json& event : json.at("events")) out.events.push_back(event_from(event));
  for (const Json& link : json.at("links"))
    out.links.push_back(
        {link.at("name").get<std::string>(), link.at("bytes").get<double>(), link.at("utilisation").get<double>()});
  for (const Json& group : json.at("groups"))
    out.groups.push_back({group.at("name").get<std::string>(), group.at("transfers").get<std::int64_t>(),
                          group.at("seconds").get<double>(), group.at("undisturbed").get<double>()});
  out.ranks = json.at("ranks").get<int>();
  out.steps = json.at("steps").get<std::int64_t>();
  out.transfers = json.at("transfers").get<std::int64_t>();
  return out;
}

Json error_to_json(const Error& error) {
  return {
      {"kind", static_cast<int>(error.kind)}, {"message", error.message}, {"where", error.where}, {"hint", error.hint}};
}

/// The accessors of the JSON library throw on a wrong shape; here that is an error like others.
template <class Read> auto guarded(const char* what, Read&& read) -> Result<decltype(read())> {
  try {
    return read();
  } catch (const std::exception& problem) {
    return fail_environment(what, problem.what());
  }
}

} // namespace

Json to_json(const Simulation& simulation) {
  Json stages = Json::array();
  for (const StageRun& stage : simulation.stages) stages.push_back(stage_to_json(stage));
  Json events = Json::array();
  for (const TimelineEvent& event : simulation.events) events.push_back(event_to_json(event));
  Json links = Json::array();
  for (const LinkLoad& link : simulation.links)
    links.push_back({{"name", link.name}, {"bytes", link.bytes}, {"utilisation", link.utilisation}});
  Json groups = Json::array();
  for (const GroupLoad& group : simulation.groups)
    groups.push_back({{"name", group.name},
                      {"transfers", group.transfers},
                      {"seconds", group.seconds},
                      {"undisturbed", group.undisturbed}});
  return {{"step_time_s", simulation.step_time.value},
          {"time", parts_to_json(simulation.time)},
          {"critical_stage", simulation.critical_stage},
          {"stages", std::move(stages)},
          {"events", std::move(events)},
          {"links", std::move(links)},
          {"groups", std::move(groups)},
          {"ranks", simulation.ranks},
          {"steps", simulation.steps},
          {"transfers", simulation.transfers}};
}

Result<Simulation> simulation_from(const Json& json) {
  return guarded("simulation", [&] { return read_simulation(json); });
}

std::string request_line(const SimulationRequest& request) {
  const Json json = {{"id", request.id},
                     {"data", request.data},
                     {"plan", to_json(request.plan)},
                     {"record", request.record},
                     {"fold", request.fold}};
  return json.dump() + "\n";
}

Result<SimulationRequest> request_from(std::string_view line) {
  FORETRAIN_TRY(const Json json, parse_json(line, "request"));
  if (!json.is_object()) return fail("request", "a request is an object");
  for (const auto& [key, value] : json.items())
    if (key != "id" && key != "data" && key != "plan" && key != "record" && key != "fold")
      return fail("request:/" + key, fmt::format("unknown key '{}'", key), "id, data, plan, record, fold");
  SimulationRequest request;
  if (!json.contains("id") || !json["id"].is_number_integer()) return fail("request:/id", "'id' must be an integer");
  request.id = json["id"].get<std::int64_t>();
  if (!json.contains("data") || !json["data"].is_string())
    return fail("request:/data", "'data' must name the folder of presets");
  request.data = json["data"].get<std::string>();
  for (const auto& [key, value] : {std::pair("record", &request.record), std::pair("fold", &request.fold)}) {
    if (!json.contains(key)) continue;
    if (!json[key].is_boolean())
      return fail(fmt::format("request:/{}", key), fmt::format("'{}' must be true or false", key));
    *value = json[key].get<bool>();
  }
  if (!json.contains("plan")) return fail("request:/plan", "'plan' is missing");
  FORETRAIN_TRY(request.plan, plan_from(json["plan"], "request:/plan", DataFolder{request.data}));
  return request;
}

std::string reply_line(std::int64_t id, const Result<Simulation>& result) {
  Json json = {{"id", id}};
  if (result)
    json["simulation"] = to_json(*result);
  else
    json["error"] = error_to_json(result.error());
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Reply> reply_from(std::string_view line) {
  return guarded("worker", [&]() -> Reply {
    const Json json = Json::parse(line);
    Reply reply{json.at("id").get<std::int64_t>(), Simulation{}};
    if (json.contains("simulation")) {
      reply.result = read_simulation(json.at("simulation"));
      return reply;
    }
    const Json& error = json.at("error");
    const int kind = error.at("kind").get<int>();
    reply.result = tl::unexpected<Error>(
        Error{kind >= 0 && kind <= static_cast<int>(Error::Kind::cancelled) ? static_cast<Error::Kind>(kind)
                                                                            : Error::Kind::environment,
              error.at("message").get<std::string>(), error.at("where").get<std::string>(),
              error.at("hint").get<std::string>()});
    return reply;
  });
}

} // namespace foretrain
