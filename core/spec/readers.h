#pragma once

#include "core/base/describe.h"
#include "core/spec/cluster.h"
#include "core/spec/job.h"
#include "core/spec/layout.h"
#include "core/spec/model.h"
#include "core/spec/plan.h"
#include "core/spec/presets.h"

/// Readers of parts of a larger document: `where` is their place in it.
namespace foretrain {

[[nodiscard]] Result<ModelSpec> read_model(const Json& json, const Where& where);
[[nodiscard]] Result<DeviceSpec> read_device(const Json& json, const Where& where);
[[nodiscard]] Result<ClusterSpec> read_cluster(const Json& json, const Where& where, const DataFolder& data);
[[nodiscard]] Result<JobSpec> read_job(const Json& json, const Where& where);
[[nodiscard]] Result<Layout> read_layout(const Json& json, const Where& where);
[[nodiscard]] Result<SearchSpace> read_space(const Json& json, const Where& where);
[[nodiscard]] Result<Objective> read_objective(const Json& json, const Where& where);
[[nodiscard]] Json space_to_json(const SearchSpace& space);

/// True for text that can only be a path: it has a folder in it or ends in ".json".
[[nodiscard]] bool looks_like_file(const std::string& text);

[[nodiscard]] Json model_schema();
[[nodiscard]] Json device_schema();
[[nodiscard]] Json cluster_schema();
[[nodiscard]] Json job_schema();
[[nodiscard]] Json layout_schema();
[[nodiscard]] Json space_schema();
[[nodiscard]] Json semantics_schema();
[[nodiscard]] std::vector<std::string> objective_ids();

} // namespace foretrain
