#include "planner/cli/inputs.h"

#include <filesystem>

#include <fmt/format.h>

#include "core/spec/io.h"
#include "planner/filter/filter.h"

namespace foretrain::cli {
namespace {

/// An error at `place` was made in a flag.
template <class T> Result<T> of_flag(Result<T> result, std::string_view place, const char* flag) {
  if (!result && result.error().where == place) result.error().where = flag;
  return result;
}

Result<Study> study_from_flags(const Context& context, const PlanOptions& options) {
  const auto missing = [](const char* flag, const char* example) {
    return fail(flag, "is needed", fmt::format("for example {} {}, or give a study file", flag, example));
  };
  if (options.model.empty()) return missing("--model", "llama3-70b");
  if (options.cluster.empty()) return missing("--cluster", "dgx-h100");
  if (!options.sequence_length) return missing("--seq-len", "8192");
  if (!options.global_batch) return missing("--global-batch", "256");
  if (options.gpus && *options.gpus < 1)
    return fail("--gpus", fmt::format("{} is not a number of devices", *options.gpus), "at least 1");
  Study study;
  FORETRAIN_TRY(study.model, of_flag(load_model(context.data, options.model), "model", "--model"));
  FORETRAIN_TRY(study.cluster,
                of_flag(load_cluster(context.data, options.cluster, options.gpus.value_or(0)), "cluster", "--cluster"));
  study.job.sequence_length = *options.sequence_length;
  study.job.global_batch = *options.global_batch;
  return study;
}

Result<Study> study_from_file(const Context& context, const PlanOptions& options) {
  const auto given_twice = [](const char* flag) {
    return fail(flag, "stands beside a study file, which has this itself", "leave one of them out");
  };
  if (!options.model.empty()) return given_twice("--model");
  if (!options.cluster.empty()) return given_twice("--cluster");
  if (options.gpus) return given_twice("--gpus");
  if (options.sequence_length) return given_twice("--seq-len");
  if (options.global_batch) return given_twice("--global-batch");
  FORETRAIN_TRY(const Json json, read_json_file(options.study));
  return study_from(json, options.study, context.data);
}

Result<std::vector<bool>> overlaps_from(const std::string& text) {
  if (text == "no") return std::vector<bool>{false};
  if (text == "yes") return std::vector<bool>{true};
  if (text == "both") return std::vector<bool>{}; // all that the framework has
  return fail("--overlap-tp", fmt::format("'{}' is unknown", text), "no, yes or both");
}

} // namespace

Result<Study> study_of(const Context& context, const PlanOptions& options) {
  FORETRAIN_TRY(Study study,
                options.study.empty() ? study_from_flags(context, options) : study_from_file(context, options));
  if (!options.precision.empty()) {
    FORETRAIN_TRY(study.job.precision, precision_from(options.precision, "--precision"));
  }
  if (options.lora) {
    if (*options.lora < 1)
      return fail("--lora", fmt::format("{} is no rank of an adapter", *options.lora), "at least 1");
    study.job.lora = LoraChoice{*options.lora, {AdapterTarget::qkv, AdapterTarget::attention_out}};
  }
  if (!options.overlap_tp.empty()) {
    FORETRAIN_TRY(study.space.overlap_tp, overlaps_from(options.overlap_tp));
  }
  if (!options.semantics.empty()) {
    FORETRAIN_TRY(const Semantics known,
                  of_flag(context.data.semantics(options.semantics), "semantics", "--semantics"));
    study.job.semantics = options.semantics;
    (void)known;
  }
  if (!options.objective.empty()) {
    FORETRAIN_TRY(study.objective, objective_from(options.objective, "--objective"));
  }
  if (!options.where.empty()) study.where = options.where;
  const std::string where = options.where.empty() ? options.study + ":/where" : "--where";
  FORETRAIN_TRY(const Filter filter, Filter::parse(study.where, where));
  (void)filter;
  if (options.study.empty()) { // flags meet the same checks as files
    auto job = job_from(to_json(study.job), "flags");
    job = of_flag(std::move(job), "flags:/sequence_length", "--seq-len");
    job = of_flag(std::move(job), "flags:/global_batch", "--global-batch");
    FORETRAIN_TRY(study.job, of_flag(std::move(job), "flags:/lora/rank", "--lora"));
  }
  return study;
}

Result<LoadedPlan> load_plan(const Context& context, const std::string& file) {
  FORETRAIN_TRY(const Json json, read_json_file(file));
  LoadedPlan loaded;
  FORETRAIN_TRY(loaded.plan, plan_from(json, file, context.data));
  FORETRAIN_TRY(loaded.semantics, context.data.semantics(loaded.plan.job.semantics));
  FORETRAIN_TRY(loaded.calibration, calibration_of(context, loaded.plan.cluster.device));
  return loaded;
}

Result<Calibration> calibration_of(const Context& context, const DeviceSpec& device) {
  const auto read = [](const std::filesystem::path& file) -> Result<Calibration> {
    FORETRAIN_TRY(const Json json, read_json_file(file));
    return calibration_from(json, file.string());
  };
  if (!context.calibration.empty()) {
    FORETRAIN_TRY(Calibration calibration, read(context.calibration));
    if (calibration.name == device.name) return calibration;
    return fail("--calibration", fmt::format("'{}' is of device {}, the plan's is {}", context.calibration.string(),
                                             calibration.name, device.name));
  }
  const std::filesystem::path own = context.user_data / "calibrations" / (device.name + ".json");
  std::error_code ignored;
  const bool plain = device.name.find('/') == std::string::npos;
  if (plain && !context.user_data.empty() && std::filesystem::exists(own, ignored)) return read(own);
  return load_calibration(context.data.root, device);
}

Result<Engine> engine_of(const Context& context, const std::string& id) {
  FORETRAIN_TRY(const Engine engine, engine_from(id, "--engine"));
  if (engine == Engine::simgrid && context.worker.empty())
    return fail_environment("--engine", "the program foretrain-sim-worker is not beside foretrain",
                            "build it, or take --engine replay");
  return engine;
}

} // namespace foretrain::cli
