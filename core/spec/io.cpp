#include "core/spec/io.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>

#include <fmt/format.h>

#include "core/spec/readers.h"

namespace foretrain {
namespace {

Result<void> check_keys(const Json& json, const Where& where, const std::string& name,
                        std::initializer_list<const char*> required_keys,
                        std::initializer_list<const char*> optional_keys) {
  if (!json.is_object())
    return fail(where.text(), fmt::format("{} is not an object", detail::show(json)), "expected " + name);
  std::vector<std::string> known(required_keys.begin(), required_keys.end());
  known.insert(known.end(), optional_keys.begin(), optional_keys.end());
  for (const auto& [key, unused] : json.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      return fail(where.at(key).text(), fmt::format("unknown key '{}' in {}", key, name), hint_for(key, known));
  for (const char* key : required_keys)
    if (!json.contains(key))
      return fail(where.text(), fmt::format("key '{}' is missing", key), name + " needs " + join(known, ", "));
  return {};
}

/// A file named in `where`'s file stands beside it.
std::filesystem::path beside(const Where& where, const std::string& text) {
  return std::filesystem::path(where.file).parent_path() / text;
}

template <class T> Result<T> moved_to(Result<T> result, const Where& where) {
  if (!result) result.error().where = where.text();
  return result;
}

Result<ModelSpec> model_or_name(const Json& json, const Where& where, const DataFolder& data) {
  if (!json.is_string()) return read_model(json, where);
  const auto text = json.get<std::string>();
  if (!looks_like_file(text)) return moved_to(data.model(text), where);
  return load_model(data, beside(where, text).string());
}

Result<ClusterSpec> cluster_or_name(const Json& json, const Where& where, const DataFolder& data) {
  if (!json.is_string()) return read_cluster(json, where, data);
  const auto text = json.get<std::string>();
  if (!looks_like_file(text)) return moved_to(data.cluster(text), where);
  return load_cluster(data, beside(where, text).string(), 0);
}

/// "semantics" of a job names one; a name that nobody knows is an error where it stands.
Result<void> check_semantics(const JobSpec& job, const Where& where, const DataFolder& data) {
  const std::vector<std::string> names = data.semantics();
  if (std::find(names.begin(), names.end(), job.semantics) != names.end()) return {};
  return fail(where.at("semantics").text(), fmt::format("'{}' is unknown", job.semantics),
              hint_for(job.semantics, names));
}

/// What `foretrain plan --json` prints holds plans, but is none.
Result<void> not_a_report(const Json& json, const Where& where) {
  if (!json.is_object() || !json.contains("ranked")) return {};
  return fail(where.text(), "this is a report of foretrain plan", "jq '.ranked[0].plan' takes its best plan out");
}

/// Byte and FLOP counts of one device stay within 64 bits, whatever the layout does with these numbers.
Result<void> check_magnitude(const ModelSpec& model, const JobSpec& job, double micro_batch, const Where& where) {
  constexpr double kMostElements = 2e17; // times 16 bytes stays below 2^63
  const double tokens = static_cast<double>(job.sequence_length) * micro_batch;
  double widest = std::max({1.0 * model.hidden, 3.0 * model.ffn, 1.0 * model.heads * model.head_dim});
  if (model.moe) widest = std::max(widest, 3.0 * model.moe->top_k * model.moe->ffn + model.moe->shared_ffn);
  if (model.latent)
    widest = std::max(widest, 1.0 * model.heads * (model.latent->qk_nope_head_dim + model.latent->qk_rope_head_dim));
  const double activations = tokens * (8 * widest * model.layers + model.vocab);
  const double scores = job.attention != AttentionKernel::flash
                            ? tokens * job.sequence_length * std::max(model.heads, 1) * model.layers
                            : 0;
  if (std::max(activations, scores) > kMostElements)
    return fail(where.text(),
                fmt::format("{:g} tokens in a micro-batch of this model make {:.1e} values", tokens,
                            std::max(activations, scores)),
                fmt::format("at most {:g}", kMostElements));
  return {};
}

} // namespace

bool looks_like_file(const std::string& text) {
  constexpr std::string_view kEnd = ".json";
  return text.find('/') != std::string::npos ||
         (text.size() > kEnd.size() && text.compare(text.size() - kEnd.size(), kEnd.size(), kEnd) == 0);
}

Result<Plan> plan_from(const Json& json, const std::string& file, const DataFolder& data) {
  const Where where{file, ""};
  if (const auto own = not_a_report(json, where); !own) return tl::unexpected<Error>(own.error());
  if (const auto keys = check_keys(json, where, "plan", {"model", "cluster", "job", "layout"}, {}); !keys)
    return tl::unexpected<Error>(keys.error());
  Plan plan;
  FORETRAIN_TRY(plan.model, model_or_name(json["model"], where.at("model"), data));
  FORETRAIN_TRY(plan.cluster, cluster_or_name(json["cluster"], where.at("cluster"), data));
  FORETRAIN_TRY(plan.job, read_job(json["job"], where.at("job")));
  FORETRAIN_TRY(plan.layout, read_layout(json["layout"], where.at("layout")));
  if (const auto known = check_semantics(plan.job, where.at("job"), data); !known)
    return tl::unexpected<Error>(known.error());
  if (const auto fits = check_magnitude(plan.model, plan.job, plan.layout.micro_batch, where); !fits)
    return tl::unexpected<Error>(fits.error());
  return plan;
}

Result<Study> study_from(const Json& json, const std::string& file, const DataFolder& data) {
  const Where where{file, ""};
  if (const auto own = not_a_report(json, where); !own) return tl::unexpected<Error>(own.error());
  if (json.is_object() && json.contains("layout"))
    return fail(where.at("layout").text(), "this is a plan, which has its layout: a study looks for layouts",
                "foretrain predict takes a plan");
  if (const auto keys = check_keys(json, where, "study", {"model", "cluster", "job"}, {"space", "objective", "where"});
      !keys)
    return tl::unexpected<Error>(keys.error());
  Study study;
  FORETRAIN_TRY(study.model, model_or_name(json["model"], where.at("model"), data));
  FORETRAIN_TRY(study.cluster, cluster_or_name(json["cluster"], where.at("cluster"), data));
  FORETRAIN_TRY(study.job, read_job(json["job"], where.at("job")));
  if (json.contains("space")) {
    FORETRAIN_TRY(study.space, read_space(json["space"], where.at("space")));
  }
  if (json.contains("objective")) {
    FORETRAIN_TRY(study.objective, read_objective(json["objective"], where.at("objective")));
  }
  if (json.contains("where")) {
    FORETRAIN_TRY(study.where, read_value<std::string>(json["where"], where.at("where")));
  }
  if (const auto known = check_semantics(study.job, where.at("job"), data); !known)
    return tl::unexpected<Error>(known.error());
  double micro_batch = 1;
  for (const int size : study.space.micro_batch) micro_batch = std::max(micro_batch, 1.0 * size);
  if (const auto fits = check_magnitude(study.model, study.job, micro_batch, where); !fits)
    return tl::unexpected<Error>(fits.error());
  return study;
}

Json to_json(const Plan& plan) {
  return Json{{"model", to_json(plan.model)},
              {"cluster", to_json(plan.cluster)},
              {"job", to_json(plan.job)},
              {"layout", to_json(plan.layout)}};
}

Json to_json(const Study& study) {
  Json json{{"model", to_json(study.model)},
            {"cluster", to_json(study.cluster)},
            {"job", to_json(study.job)},
            {"space", space_to_json(study.space)},
            {"objective", std::string(id_of(study.objective))}};
  if (!study.where.empty()) json["where"] = study.where;
  return json;
}

Json to_json(const Rejection& rejection) {
  return Json{{"rule", rejection.rule},
              {"reason", rejection.reason},
              {"needed", rejection.needed},
              {"available", rejection.available},
              {"nearest", rejection.nearest}};
}

namespace {

Json to_json(const StageMemory& stage) {
  Json parts = Json::object();
  for (int i = 0; i < kMemoryParts; ++i)
    parts[std::string(id_of(static_cast<MemoryPart>(i)))] = stage.parts[static_cast<std::size_t>(i)].value;
  return Json{{"allocated_bytes", stage.allocated.value},
              {"reserved_bytes", stage.reserved.value},
              {"device_bytes", stage.device.value},
              {"parts", parts},
              {"peak_at", stage.peak_at}};
}

} // namespace

Json to_json(const Prediction& prediction) {
  // A layout that cannot be built has no time; what fits or not has one.
  const bool timed = prediction.verdict != Verdict::illegal;
  const auto number = [timed](double value) { return timed && std::isfinite(value) ? Json(value) : Json(nullptr); };
  Json time = Json::object();
  for (int i = 0; i < kTimeParts; ++i)
    time[std::string(id_of(static_cast<TimePart>(i)))] = number(prediction.time[static_cast<std::size_t>(i)].value);
  Json memory = Json::array();
  for (const StageMemory& stage : prediction.memory) memory.push_back(to_json(stage));
  Json rejections = Json::array();
  for (const Rejection& rejection : prediction.rejections) rejections.push_back(to_json(rejection));
  const auto& [fastest, slowest] = prediction.step_time_interval;
  const auto& [least, most] = prediction.memory_interval;
  return Json{{"verdict", std::string(id_of(prediction.verdict))},
              {"engine", std::string(id_of(prediction.engine))},
              {"step_time_s", number(prediction.step_time.value)},
              {"tokens_per_s_per_gpu", number(prediction.tokens_per_s_per_device)},
              {"model_tflops_per_gpu", number(prediction.model_tflops_per_device)},
              {"mfu_percent", number(prediction.mfu_percent)},
              {"flop_convention", prediction.flop_convention},
              {"time", time},
              {"memory", memory},
              {"rejections", rejections},
              {"evidence", std::string(id_of(prediction.evidence))},
              {"interval",
               {{"step_time_s", Json::array({number(fastest.value), number(slowest.value)})},
                {"memory_bytes", Json::array({least.value, most.value})}}},
              {"notes", prediction.notes}};
}

} // namespace foretrain
