#include "core/spec/describe_plan.h"
#include "core/spec/io.h"

namespace foretrain {
namespace {

/// Reads members of a document of ours; the first error stays.
class DocumentReader {
public:
  DocumentReader(const Json& json, Where where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) error_ = Error{Error::Kind::input, "is not an object", where_.text(), {}};
  }

  /// Missing keys leave `target` as it is: a document of an earlier version lacks some.
  template <class T> void read(const char* key, T& target) {
    const Json* found = find(key);
    if (!found) return;
    auto value = read_value<T>(*found, where_.at(key));
    if (value)
      target = std::move(*value);
    else
      error_ = value.error();
  }
  void read_number(const char* key, double& target) {
    const Json* found = find(key);
    if (found && !found->is_null()) read(key, target);
  }
  /// A list of objects, each read by `element`.
  template <class T, class Read> void read_list(const char* key, std::vector<T>& target, Read element) {
    const Json* found = find(key);
    if (!found) return;
    for (std::size_t i = 0; i < found->size() && !error_; ++i) {
      auto value = element((*found)[i], where_.at(key).at(std::to_string(i)));
      if (value)
        target.push_back(std::move(*value));
      else
        error_ = value.error();
    }
  }
  /// An object with one member per value of an enum.
  template <class E, class Array, class Convert> void read_parts(const char* key, Array& target, Convert convert) {
    const Json* found = find(key);
    if (!found || !found->is_object()) return;
    for (std::size_t i = 0; i < target.size(); ++i) {
      const auto part = found->find(std::string(name_of(static_cast<E>(i))));
      if (part != found->end() && part->is_number()) target[i] = convert(*part);
    }
  }

  [[nodiscard]] const Json* find(const char* key) const {
    if (error_) return nullptr;
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  [[nodiscard]] Where at(const char* key) const { return where_.at(key); }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

private:
  const Json& json_;
  Where where_;
  std::optional<Error> error_;
};

Seconds seconds(const Json& json) {
  return Seconds(json.get<double>());
}
Bytes bytes(const Json& json) {
  return Bytes(json.get<std::int64_t>());
}

Result<Rejection> read_rejection(const Json& json, const Where& where) {
  DocumentReader reader(json, where);
  Rejection rejection;
  reader.read("rule", rejection.rule);
  reader.read("reason", rejection.reason);
  reader.read_number("needed", rejection.needed);
  reader.read_number("available", rejection.available);
  reader.read("nearest", rejection.nearest);
  if (reader.error()) return tl::unexpected<Error>(*reader.error());
  return rejection;
}

Result<StageMemory> read_stage(const Json& json, const Where& where) {
  DocumentReader reader(json, where);
  StageMemory stage;
  reader.read("allocated_bytes", stage.allocated.value);
  reader.read("reserved_bytes", stage.reserved.value);
  reader.read("device_bytes", stage.device.value);
  reader.read("peak_at", stage.peak_at);
  reader.read_parts<MemoryPart>("parts", stage.parts, bytes);
  if (reader.error()) return tl::unexpected<Error>(*reader.error());
  return stage;
}

template <class Array, class Convert>
void read_pair(const Json& json, const char* key, Array& target, Convert convert) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array() || found->size() != target.size()) return;
  for (std::size_t i = 0; i < target.size(); ++i)
    if ((*found)[i].is_number()) target[i] = convert((*found)[i]);
}

} // namespace

Result<Rejection> rejection_from(const Json& json, const std::string& where) {
  return read_rejection(json, Where{where, ""});
}

Result<Prediction> prediction_from(const Json& json, const std::string& where) {
  DocumentReader reader(json, Where{where, ""});
  Prediction prediction;
  reader.read("verdict", prediction.verdict);
  reader.read("engine", prediction.engine);
  reader.read_number("step_time_s", prediction.step_time.value);
  reader.read_number("tokens_per_s_per_gpu", prediction.tokens_per_s_per_device);
  reader.read_number("model_tflops_per_gpu", prediction.model_tflops_per_device);
  reader.read_number("mfu_percent", prediction.mfu_percent);
  reader.read("flop_convention", prediction.flop_convention);
  reader.read_parts<TimePart>("time", prediction.time, seconds);
  reader.read_list("memory", prediction.memory, read_stage);
  reader.read_list("rejections", prediction.rejections, read_rejection);
  reader.read("evidence", prediction.evidence);
  reader.read("notes", prediction.notes);
  if (const Json* interval = reader.find("interval"); interval && interval->is_object()) {
    read_pair(*interval, "step_time_s", prediction.step_time_interval, seconds);
    read_pair(*interval, "memory_bytes", prediction.memory_interval, bytes);
  }
  if (reader.error()) return tl::unexpected<Error>(*reader.error());
  return prediction;
}

} // namespace foretrain
