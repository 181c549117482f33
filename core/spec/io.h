#pragma once

#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/spec/cluster.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/model.h"
#include "core/spec/names.h"
#include "core/spec/plan.h"
#include "core/spec/prediction.h"
#include "core/spec/presets.h"
#include "core/spec/semantics.h"

namespace foretrain {

/// Readers. `file` names the source in errors; every error carries file, JSON pointer, value and what would be right.
/// Where an object stands, a preset's name may stand instead (model, cluster, device), or a file beside the one that is
/// read (model, cluster). A cluster may also be {"preset": NAME, "devices": N}.
[[nodiscard]] Result<ModelSpec> model_from(const Json& json, const std::string& file);
[[nodiscard]] Result<DeviceSpec> device_from(const Json& json, const std::string& file);
[[nodiscard]] Result<ClusterSpec> cluster_from(const Json& json, const std::string& file, const DataFolder& data);
[[nodiscard]] Result<Semantics> semantics_from(const Json& json, const std::string& file);
[[nodiscard]] Result<Layout> layout_from(const Json& json, const std::string& file);
[[nodiscard]] Result<JobSpec> job_from(const Json& json, const std::string& file);
[[nodiscard]] Result<Plan> plan_from(const Json& json, const std::string& file, const DataFolder& data);
[[nodiscard]] Result<Study> study_from(const Json& json, const std::string& file, const DataFolder& data);

/// Writers: what is read back is equal.
[[nodiscard]] Json to_json(const ModelSpec& model);
[[nodiscard]] Json to_json(const DeviceSpec& device);
[[nodiscard]] Json to_json(const ClusterSpec& cluster);
[[nodiscard]] Json to_json(const Semantics& semantics);
[[nodiscard]] Json to_json(const JobSpec& job);
[[nodiscard]] Json to_json(const Layout& layout);
[[nodiscard]] Json to_json(const Plan& plan);
[[nodiscard]] Json to_json(const Study& study);
/// The document of `foretrain predict`.
[[nodiscard]] Json to_json(const Prediction& prediction);
[[nodiscard]] Json to_json(const Rejection& rejection);
/// `to_json(prediction)` as text, without building the document: a search writes 100,000 of them.
[[nodiscard]] std::string prediction_text(const Prediction& prediction);
/// Reads back what the writers above give. `where` names the document in errors. A number that is null (the time of a
/// layout that cannot be built) reads as 0.
[[nodiscard]] Result<Prediction> prediction_from(const Json& json, const std::string& where);
[[nodiscard]] Result<Rejection> rejection_from(const Json& json, const std::string& where);

/// JSON Schema by name: model, device, cluster, job, layout, semantics, plan, study. Error: unknown name.
[[nodiscard]] std::vector<std::string> schema_names();
[[nodiscard]] Result<Json> schema(const std::string& name);
/// docs/file-formats.md: every key of every file, from the same descriptions.
[[nodiscard]] std::string reference_page();

} // namespace foretrain
