#include "core/spec/measurement.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/base/csv.h"
#include "core/base/json.h"

namespace foretrain {
namespace {

/// The cells of one row with assumptions applied, and how to read them. Remembers the first error.
class RowReader {
public:
  RowReader(const CsvRecord& record, const std::string& file) : file_(file), line_(record.line) {
    for (std::size_t i = 0; i < kMeasurementColumns.size(); ++i)
      cells_.emplace(std::string(kMeasurementColumns[i]), record.fields[i]);
  }

  /// Fills empty cells; a value that the row states itself stays.
  void fill(const std::vector<Assumption>& assumptions, Measurement& row) {
    const std::map<std::string, std::string> stated = cells_;
    for (const Assumption& assumption : assumptions) {
      const bool applies = std::all_of(assumption.when.begin(), assumption.when.end(), [&](const auto& condition) {
        const auto cell = stated.find(condition.first);
        return cell != stated.end() &&
               std::find(condition.second.begin(), condition.second.end(), cell->second) != condition.second.end();
      });
      if (!applies) continue;
      const auto cell = cells_.find(assumption.key);
      if (cell != cells_.end()) {
        if (!cell->second.empty()) continue;
        cell->second = assumption.value;
      } else if (!row.extras.emplace(assumption.key, assumption.value).second) {
        continue;
      }
      row.assumed.push_back(assumption.key + " " + assumption.value);
      if (assumption.memory_open) row.memory_open.push_back(assumption.key);
    }
  }

  [[nodiscard]] std::string text(const std::string& column) const { return cells_.at(column); }

  std::optional<double> number(const std::string& column) {
    const std::string& cell = cells_.at(column);
    if (cell.empty()) return std::nullopt;
    double value = 0;
    const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (code != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value) || value < 0) {
      reject(column, "a number, not negative");
      return std::nullopt;
    }
    return value;
  }

  std::optional<std::int64_t> count(const std::string& column, std::int64_t maximum) {
    const std::string& cell = cells_.at(column);
    if (cell.empty()) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (code != std::errc() || end != cell.data() + cell.size() || value < 0 || value > maximum) {
      reject(column, fmt::format("a whole number from 0 to {}", maximum));
      return std::nullopt;
    }
    return value;
  }

  std::optional<int> small(const std::string& column) {
    const auto value = count(column, std::numeric_limits<int>::max());
    if (!value) return std::nullopt;
    return static_cast<int>(*value);
  }

  std::optional<bool> flag(const std::string& column) {
    const std::string& cell = cells_.at(column);
    if (cell.empty()) return std::nullopt;
    if (cell != "0" && cell != "1") reject(column, "0 or 1");
    return cell == "1";
  }

  template <class Value> Value choice(const std::string& column, const std::map<std::string, Value>& values) {
    const auto found = values.find(cells_.at(column));
    if (found != values.end()) return found->second;
    reject(column, "another word");
    return Value{};
  }

  /// The source gives what the protocol asks for. Before `fill`.
  [[nodiscard]] bool states_run() const {
    constexpr std::array<const char*, 7> kNeeded = {"gpu",     "n_gpus",  "n_layers",         "hidden",
                                                    "n_heads", "seq_len", "global_batch_seqs"};
    return std::none_of(kNeeded.begin(), kNeeded.end(),
                        [&](const char* column) { return cells_.at(column).empty() || cells_.at(column) == "0"; });
  }

  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

private:
  void reject(const std::string& column, std::string expected) {
    if (error_) return;
    error_ = Error{Error::Kind::input, fmt::format("column {}: '{}'", column, cells_.at(column)),
                   fmt::format("{}:{}", file_, line_), std::move(expected)};
  }

  const std::string& file_;
  int line_ = 0;
  std::map<std::string, std::string> cells_;
  std::optional<Error> error_;
};

void read_model(RowReader& cells, Measurement& row) {
  row.model = cells.text("model");
  row.layers = cells.small("n_layers");
  row.hidden = cells.small("hidden");
  row.heads = cells.small("n_heads");
  row.kv_heads = cells.small("n_kv_heads");
  row.head_dim = cells.small("head_dim");
  row.ffn = cells.small("ffn_hidden");
  row.gated = cells.flag("gated_mlp");
  row.vocab = cells.small("vocab");
  row.tied_embeddings = cells.flag("tied_embeddings");
  row.experts = cells.small("n_experts");
  row.top_k = cells.small("top_k");
  row.moe_ffn = cells.small("moe_ffn_hidden");
  row.shared_experts = cells.small("n_shared_experts");
  row.moe_pattern = cells.text("moe_layer_freq");
}

void read_job_and_layout(RowReader& cells, Measurement& row) {
  row.sequence_length = cells.small("seq_len");
  row.global_batch = cells.count("global_batch_seqs", std::int64_t{1} << 40);
  row.micro_batch = cells.small("micro_batch_seqs");
  row.devices = cells.small("n_gpus");
  row.device = cells.text("gpu");
  row.devices_per_node = cells.small("gpus_per_node");
  row.interconnect = cells.text("interconnect");
  row.tp = cells.small("tp");
  row.sequence_parallel = cells.flag("sp");
  row.pp = cells.small("pp");
  row.chunks = cells.small("vp");
  row.cp = cells.small("cp");
  row.ep = cells.small("ep");
  row.etp = cells.small("etp");
  row.dp = cells.small("dp");
  row.sharding = cells.text("zero_stage_or_fsdp");
  row.recompute = cells.text("recompute");
  row.precision = cells.text("precision");
  row.schedule = cells.text("schedule");
  row.framework = cells.text("framework");
  row.kernels = cells.text("kernels");
  row.dropout = cells.number("dropout");
}

void read_figures(RowReader& cells, Measurement& row) {
  if (const auto value = cells.number("iter_time_s")) row.step_time = Seconds(*value);
  row.tokens_per_s_per_device = cells.number("tokens_per_s_per_gpu");
  row.tflops_per_device = cells.number("tflops_per_gpu");
  row.mfu_percent = cells.number("mfu_pct");
  row.hfu_percent = cells.number("hfu_pct");
  if (const auto value = cells.number("peak_mem_gib"); value && *value < 1e9)
    row.peak_memory = Bytes(static_cast<std::int64_t>(std::llround(*value * static_cast<double>(kGiB))));
  row.memory_kind = cells.choice<MemoryKind>("mem_kind", {{"allocated", MemoryKind::allocated},
                                                          {"reserved", MemoryKind::reserved},
                                                          {"device", MemoryKind::device},
                                                          {"", MemoryKind::unstated}});
  row.memory_rank = cells.choice<MemoryRank>(
      "mem_rank", {{"max", MemoryRank::maximum}, {"last", MemoryRank::last}, {"", MemoryRank::unstated}});
  row.outcome = cells.text("outcome");
  row.doubtful = cells.flag("doubtful").value_or(false);
  row.notes = cells.text("notes");
}

/// Something in the row can be compared: a time that was measured, memory, or that the run ended out of memory.
bool is_judged(const Measurement& row) {
  if (row.outcome.find("OOM") != std::string::npos) return true;
  if (!row.outcome.empty() && row.outcome != "ok") return false;
  const bool timed = measured_step_time(row).has_value() && !time_is_derived_from_flop(row);
  return timed || row.peak_memory.value_or(Bytes(0)).value > 0;
}

Result<Measurement> read_row(const CsvRecord& record, const std::string& file,
                             const std::vector<Assumption>& assumptions) {
  Measurement row;
  RowReader cells(record, file);
  row.line = record.line;
  row.extras = extras_in_notes(cells.text("notes"));
  const bool stated = cells.states_run();
  cells.fill(assumptions, row);
  row.source = cells.text("source");
  row.locator = cells.text("source_locator");
  row.row_id = cells.text("row_id");
  read_model(cells, row);
  read_job_and_layout(cells, row);
  read_figures(cells, row);
  if (row.notes.find("cpu_offloading_num_layers=") != std::string::npos) row.memory_open.push_back("offload");
  if (cells.error()) return tl::unexpected<Error>(*cells.error());
  row.eligible = stated && !row.doubtful && is_judged(row);
  return row;
}

bool has_measurement_header(const std::vector<std::string>& fields) {
  return std::equal(fields.begin(), fields.end(), kMeasurementColumns.begin(), kMeasurementColumns.end());
}

} // namespace

Result<MeasurementFile> parse_measurements(std::string_view text, const std::string& file,
                                           const std::vector<Assumption>& assumptions) {
  FORETRAIN_TRY(const std::vector<CsvRecord> records, parse_csv(text, file));
  MeasurementFile result;
  if (!has_measurement_header(records.front().fields)) {
    result.skipped =
        fmt::format("not a file of runs: {} columns of which the first is '{}', instead of the {} of a run",
                    records.front().fields.size(), records.front().fields.front(), kMeasurementColumns.size());
    return result;
  }
  result.rows.reserve(records.size() - 1);
  for (std::size_t i = 1; i < records.size(); ++i) {
    FORETRAIN_TRY(Measurement row, read_row(records[i], file, assumptions));
    result.rows.push_back(std::move(row));
  }
  return result;
}

Result<MeasurementFile> read_measurements(const std::filesystem::path& path,
                                          const std::vector<Assumption>& assumptions) {
  FORETRAIN_TRY(const std::string text, read_text_file(path));
  return parse_measurements(text, path.string(), assumptions);
}

std::optional<Seconds> measured_step_time(const Measurement& row) {
  if (row.step_time) return row.step_time;
  if (!row.tokens_per_s_per_device || *row.tokens_per_s_per_device <= 0) return std::nullopt;
  if (!row.global_batch || !row.sequence_length || !row.devices) return std::nullopt;
  const double tokens = static_cast<double>(*row.global_batch) * *row.sequence_length;
  return Seconds(tokens / (*row.tokens_per_s_per_device * *row.devices));
}

std::string_view id_of(MemoryKind kind) {
  switch (kind) {
  case MemoryKind::allocated:
    return "allocated";
  case MemoryKind::reserved:
    return "reserved";
  case MemoryKind::device:
    return "device";
  case MemoryKind::unstated:
    return "unstated";
  }
  return "";
}

} // namespace foretrain
