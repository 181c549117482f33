#include "tests/core/spec/measured_rows.h"

#include <gtest/gtest.h>

#include "core/spec/io.h"
#include "tests/support/places.h"

namespace foretrain::test {

DataFolder data() {
  return DataFolder{test::source_folder() / "data"};
}

std::string header() {
  std::string line;
  for (const std::string_view column : kMeasurementColumns) line += (line.empty() ? "" : ",") + std::string(column);
  return line + "\r\n";
}

std::string row(const std::map<std::string, std::string>& cells) {
  std::string line;
  for (const std::string_view column : kMeasurementColumns) {
    if (column != kMeasurementColumns.front()) line += ',';
    if (const auto cell = cells.find(std::string(column)); cell != cells.end()) line += '"' + cell->second + '"';
  }
  return line + "\r\n";
}

std::map<std::string, std::string> dense() {
  return {{"source", "a report"},
          {"row_id", "r1"},
          {"model", "some model"},
          {"n_layers", "4"},
          {"hidden", "1024"},
          {"n_heads", "16"},
          {"n_kv_heads", "4"},
          {"ffn_hidden", "2816"},
          {"gated_mlp", "1"},
          {"vocab", "32000"},
          {"tied_embeddings", "0"},
          {"seq_len", "2048"},
          {"global_batch_seqs", "64"},
          {"micro_batch_seqs", "2"},
          {"n_gpus", "16"},
          {"gpu", "H100-SXM-80GB"},
          {"tp", "2"},
          {"sp", "1"},
          {"pp", "2"},
          {"cp", "1"},
          {"zero_stage_or_fsdp", "ZeRO-1"},
          {"recompute", "none"},
          {"precision", "bf16"},
          {"framework", "Megatron-LM"},
          {"iter_time_s", "1.5"},
          {"peak_mem_gib", "10.5"},
          {"mem_kind", "allocated"},
          {"outcome", "ok"}};
}

Measurement read(const std::map<std::string, std::string>& cells, const std::vector<Assumption>& assumptions) {
  auto file = parse_measurements(header() + row(cells), "a.csv", assumptions);
  EXPECT_TRUE(file) << (file ? "" : to_string(file.error()));
  return file->rows.at(0);
}

tl::expected<MeasuredPlan, Skip> plan(const std::map<std::string, std::string>& cells) {
  auto result = plan_of(read(cells), read_measured_names(data()).value(), data());
  EXPECT_TRUE(result) << (result ? "" : to_string(result.error()));
  return *result;
}

std::string skipped(const std::map<std::string, std::string>& changes) {
  auto cells = dense();
  for (const auto& [column, value] : changes) cells[column] = value;
  const auto result = plan(cells);
  return result ? "" : to_string(result.error());
}

} // namespace foretrain::test
