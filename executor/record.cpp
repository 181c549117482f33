#include "executor/record.h"

#include "core/program/names.h"

namespace foretrain {

Json to_json(const StepRecord& record, bool with_ops) {
  Json json;
  json["step"] = record.step;
  json["rank"] = record.rank;
  json["loss"] = record.loss;
  if (record.mtp_loss) json["mtp_loss"] = *record.mtp_loss;
  json["gradient_norm"] = record.gradient_norm;
  json["step_time_s"] = record.seconds;
  json["began_s"] = record.began;
  if (record.peak_bytes >= 0) json["peak_allocated_bytes"] = record.peak_bytes;
  if (record.peak_reserved_bytes >= 0) json["peak_reserved_bytes"] = record.peak_reserved_bytes;
  if (record.host_peak_bytes >= 0) json["peak_host_bytes"] = record.host_peak_bytes;
  if (!with_ops) return json;
  if (!record.peaks.empty()) json["peaks"] = record.peaks;
  Json ops = Json::array();
  for (const OpRecord& op : record.ops) {
    Json entry;
    entry["op"] = op.place.name;
    entry["pass"] = std::string(id_of(op.place.pass));
    entry["chunk"] = op.place.chunk;
    entry["micro_batch"] = op.place.micro_batch;
    if (op.place.position >= 0) entry["block"] = op.place.position;
    if (op.place.layer >= 0) entry["layer"] = op.place.layer;
    if (op.bytes > 0) entry["bytes"] = op.bytes;
    entry["start_s"] = op.start;
    entry["end_s"] = op.end;
    if (op.transfer) {
      entry["transfer_start_s"] = op.transfer->start;
      entry["transfer_end_s"] = op.transfer->end;
    }
    ops.push_back(std::move(entry));
  }
  json["ops"] = std::move(ops);
  return json;
}

} // namespace foretrain
