#include "core/spec/describe_job.h"
#include "core/spec/io.h"
#include "core/spec/readers.h"

namespace foretrain {

Result<JobSpec> read_job(const Json& json, const Where& where) {
  return read_value<JobSpec>(json, where);
}
Result<JobSpec> job_from(const Json& json, const std::string& file) {
  return read_job(json, Where{file, ""});
}
Json to_json(const JobSpec& job) {
  return write_struct(job);
}
Json job_schema() {
  return schema_of<JobSpec>();
}

std::string_view id_of(Precision value) {
  return name_of(value);
}
std::string_view id_of(DType value) {
  return name_of(value);
}
std::string_view id_of(OptimizerKind value) {
  return name_of(value);
}
Result<Precision> precision_from(std::string_view text, const std::string& where) {
  return read_value<Precision>(Json(std::string(text)), Where{where, ""});
}

} // namespace foretrain
