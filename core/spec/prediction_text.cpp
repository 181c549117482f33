#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "core/spec/io.h"

namespace foretrain {
namespace {

/// Appends JSON piece by piece. Commas: before every element but the first of its list.
class TextWriter {
public:
  void key(std::string_view name) {
    comma();
    text_ += '"';
    text_ += name;
    text_ += "\":";
    first_ = true; // the value itself takes no comma
  }
  void open(char bracket) {
    comma();
    text_ += bracket;
    first_ = true;
  }
  void close(char bracket) {
    text_ += bracket;
    first_ = false;
  }
  void number(double value) {
    comma();
    if (std::isfinite(value))
      fmt::format_to(std::back_inserter(text_), FMT_STRING("{}"), value);
    else
      text_ += "null";
  }
  void whole(std::int64_t value) {
    comma();
    fmt::format_to(std::back_inserter(text_), FMT_STRING("{}"), value);
  }
  void null() {
    comma();
    text_ += "null";
  }
  /// Texts of ours and names of models: whatever needs an escape goes the slow way.
  void text(std::string_view value) {
    comma();
    for (const char c : value) {
      if (c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20) continue;
      text_ += Json(std::string(value)).dump();
      return;
    }
    text_ += '"';
    text_ += value;
    text_ += '"';
  }
  void texts(const std::vector<std::string>& values) {
    open('[');
    for (const std::string& value : values) text(value);
    close(']');
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

private:
  void comma() {
    if (!first_) text_ += ',';
    first_ = false;
  }

  std::string text_;
  bool first_ = true;
};

void write(TextWriter& out, const Rejection& rejection) {
  out.open('{');
  out.key("rule"), out.text(rejection.rule);
  out.key("reason"), out.text(rejection.reason);
  out.key("needed"), out.number(rejection.needed);
  out.key("available"), out.number(rejection.available);
  out.key("nearest"), out.texts(rejection.nearest);
  out.close('}');
}

void write(TextWriter& out, const StageMemory& stage) {
  out.open('{');
  out.key("allocated_bytes"), out.whole(stage.allocated.value);
  out.key("reserved_bytes"), out.whole(stage.reserved.value);
  out.key("device_bytes"), out.whole(stage.device.value);
  out.key("parts"), out.open('{');
  for (int i = 0; i < kMemoryParts; ++i) {
    out.key(id_of(static_cast<MemoryPart>(i)));
    out.whole(stage.parts[static_cast<std::size_t>(i)].value);
  }
  out.close('}');
  out.key("peak_at"), out.text(stage.peak_at);
  out.close('}');
}

} // namespace

std::string prediction_text(const Prediction& prediction) {
  const bool timed = prediction.verdict != Verdict::illegal;
  TextWriter out;
  const auto number = [&](double value) { timed ? out.number(value) : out.null(); };
  out.open('{');
  out.key("verdict"), out.text(id_of(prediction.verdict));
  out.key("engine"), out.text(id_of(prediction.engine));
  out.key("step_time_s"), number(prediction.step_time.value);
  out.key("tokens_per_s_per_gpu"), number(prediction.tokens_per_s_per_device);
  out.key("model_tflops_per_gpu"), number(prediction.model_tflops_per_device);
  out.key("mfu_percent"), number(prediction.mfu_percent);
  out.key("flop_convention"), out.text(prediction.flop_convention);
  out.key("time"), out.open('{');
  for (int i = 0; i < kTimeParts; ++i) {
    out.key(id_of(static_cast<TimePart>(i)));
    number(prediction.time[static_cast<std::size_t>(i)].value);
  }
  out.close('}');
  out.key("memory"), out.open('[');
  for (const StageMemory& stage : prediction.memory) write(out, stage);
  out.close(']');
  out.key("rejections"), out.open('[');
  for (const Rejection& rejection : prediction.rejections) write(out, rejection);
  out.close(']');
  out.key("evidence"), out.text(id_of(prediction.evidence));
  out.key("interval"), out.open('{');
  out.key("step_time_s"), out.open('[');
  for (const Seconds bound : prediction.step_time_interval) number(bound.value);
  out.close(']');
  out.key("memory_bytes"), out.open('[');
  for (const Bytes bound : prediction.memory_interval) out.whole(bound.value);
  out.close(']');
  out.close('}');
  out.key("notes"), out.texts(prediction.notes);
  out.close('}');
  return out.take();
}

} // namespace foretrain
