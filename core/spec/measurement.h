#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/spec/plan.h"
#include "core/spec/presets.h"

namespace foretrain {

/// Columns of the run-level files in data/measured, in order.
inline constexpr std::array<std::string_view, 51> kMeasurementColumns = {"source",
                                                                         "source_locator",
                                                                         "row_id",
                                                                         "model",
                                                                         "n_layers",
                                                                         "hidden",
                                                                         "n_heads",
                                                                         "n_kv_heads",
                                                                         "head_dim",
                                                                         "ffn_hidden",
                                                                         "gated_mlp",
                                                                         "vocab",
                                                                         "tied_embeddings",
                                                                         "n_experts",
                                                                         "top_k",
                                                                         "moe_ffn_hidden",
                                                                         "n_shared_experts",
                                                                         "moe_layer_freq",
                                                                         "seq_len",
                                                                         "global_batch_seqs",
                                                                         "micro_batch_seqs",
                                                                         "n_gpus",
                                                                         "gpu",
                                                                         "gpus_per_node",
                                                                         "interconnect",
                                                                         "tp",
                                                                         "sp",
                                                                         "pp",
                                                                         "vp",
                                                                         "cp",
                                                                         "ep",
                                                                         "etp",
                                                                         "dp",
                                                                         "zero_stage_or_fsdp",
                                                                         "recompute",
                                                                         "precision",
                                                                         "schedule",
                                                                         "framework",
                                                                         "iter_time_s",
                                                                         "tokens_per_s_per_gpu",
                                                                         "tflops_per_gpu",
                                                                         "mfu_pct",
                                                                         "hfu_pct",
                                                                         "peak_mem_gib",
                                                                         "notes",
                                                                         "outcome",
                                                                         "mem_kind",
                                                                         "mem_rank",
                                                                         "kernels",
                                                                         "dropout",
                                                                         "doubtful"};

enum class MemoryKind { allocated, reserved, device, unstated };
enum class MemoryRank { maximum, last, unstated };

/// One published run: what was run and what was measured. An empty cell is absent. Texts are as the source has them.
struct Measurement {
  std::string source;
  std::string locator;
  std::string row_id;
  int line = 0; ///< in its file

  std::string model;
  std::optional<int> layers;
  std::optional<int> hidden;
  std::optional<int> heads;
  std::optional<int> kv_heads;
  std::optional<int> head_dim;
  std::optional<int> ffn;
  std::optional<bool> gated;
  std::optional<int> vocab;
  std::optional<bool> tied_embeddings;
  std::optional<int> experts;
  std::optional<int> top_k;
  std::optional<int> moe_ffn;
  std::optional<int> shared_experts;
  std::string moe_pattern; ///< "1", or a list per layer as "([0]*3+[1]*58)"

  std::optional<int> sequence_length;
  std::optional<std::int64_t> global_batch; ///< sequences
  std::optional<int> micro_batch;
  std::optional<int> devices;
  std::string device;
  std::optional<int> devices_per_node;
  std::string interconnect;

  std::optional<int> tp;
  std::optional<bool> sequence_parallel;
  std::optional<int> pp;
  std::optional<int> chunks;
  std::optional<int> cp;
  std::optional<int> ep;
  std::optional<int> etp;
  std::optional<int> dp;
  std::string sharding;
  std::string recompute;
  std::string precision;
  std::string schedule;
  std::string framework;
  std::string kernels;
  std::optional<double> dropout;

  std::optional<Seconds> step_time; ///< as printed; `measured_step_time` also derives it from a rate
  std::optional<double> tokens_per_s_per_device;
  std::optional<double> tflops_per_device;
  std::optional<double> mfu_percent;
  std::optional<double> hfu_percent;
  std::optional<Bytes> peak_memory;
  MemoryKind memory_kind = MemoryKind::unstated;
  MemoryRank memory_rank = MemoryRank::unstated;
  std::string outcome; ///< "ok", or what stopped the run
  bool doubtful = false;
  std::string notes;
  bool eligible =
      false; ///< by the protocol (docs/accuracy.md): what a prediction needs is stated, something was measured

  /// Settings that have no column, by key (`kExtraKeys`): from assumptions and from the notes.
  std::map<std::string, std::string> extras;
  /// What an assumption filled in: column and value. Told beside every comparison.
  std::vector<std::string> assumed;
  /// What the source leaves open and memory hangs on: recomputation or offload that is assumed, or not modelled.
  std::vector<std::string> memory_open;
  bool operator==(const Measurement&) const = default;
};

/// Settings beside the columns. `network`: a rate between nodes per device and direction. `mla`: "q 1536 kv 512 nope
/// 128 rope 64 v 128" (without q: no query compression). `layers_per_stage`: "2 2 1" per model chunk.
/// `embedding_is_a_layer`: the pipeline is cut as if embedding and head were a layer each. `recompute_by`: "operators"
/// where "selective" means a policy by operator. `lora`: "16 qkv attention-out". `accumulation`: micro-batches of a
/// replica, where a source gives these and no micro-batch. `packed`: "full", sequences packed to the stated length. The
/// others are ids or numbers of the member they name.
inline constexpr std::array<std::string_view, 42> kExtraKeys = {"network",
                                                                "cluster",
                                                                "semantics",
                                                                "preset",
                                                                "gradient",
                                                                "cross_entropy",
                                                                "attention",
                                                                "norm",
                                                                "qk_norm",
                                                                "learned_positions",
                                                                "biases",
                                                                "qkv_bias",
                                                                "dispatch",
                                                                "context_parallel",
                                                                "overlap_tp",
                                                                "overlap_gradients",
                                                                "overlap_parameters",
                                                                "overlap_transfers",
                                                                "optimizer",
                                                                "gradient_fusion",
                                                                "expandable_segments",
                                                                "shared_ffn",
                                                                "first_dense",
                                                                "mla",
                                                                "mtp_layers",
                                                                "layers_per_stage",
                                                                "embedding_is_a_layer",
                                                                "norm_kernel",
                                                                "deterministic",
                                                                "compiled",
                                                                "quantised_weights",
                                                                "moments",
                                                                "recompute_by",
                                                                "first_stage_layers",
                                                                "last_stage_layers",
                                                                "micro_batch_group",
                                                                "lora",
                                                                "accumulation",
                                                                "capacity_factor",
                                                                "packed",
                                                                "step_time_p25",
                                                                "step_time_p75"};

/// The files of one source say some things once, or not at all. data/assumptions/<file stem>.json fills what is empty;
/// nothing that a row states is overridden. `when` limits an entry to rows whose cells have one of these values.
struct Assumption {
  std::string key; ///< a column or an extra key
  std::string value;
  std::map<std::string, std::vector<std::string>> when;
  std::string why;
  bool memory_open = false; ///< the source does not say, and whether a run fits hangs on it
  bool operator==(const Assumption&) const = default;
};

/// Assumptions for a file of measurements: empty when there is no such file. Errors: unknown key, not JSON.
[[nodiscard]] Result<std::vector<Assumption>> read_assumptions(const DataFolder& data, const std::string& stem);

/// A file of measurements. A file with another header is not an error: `skipped` says why it has no rows.
struct MeasurementFile {
  std::vector<Measurement> rows;
  std::optional<std::string> skipped;
};

/// Errors carry file, line and column: not CSV, a cell that is not a number of its kind.
[[nodiscard]] Result<MeasurementFile> read_measurements(const std::filesystem::path& path,
                                                        const std::vector<Assumption>& assumptions);
[[nodiscard]] Result<MeasurementFile> parse_measurements(std::string_view text, const std::string& file,
                                                         const std::vector<Assumption>& assumptions);

/// Why a row is not compared. A closed list, so that a summary can count.
enum class SkipReason {
  missing,             ///< a dimension that the prediction needs is not stated
  doubtful,            ///< the collection marks that something contradicts
  reduced_information, ///< the source itself calls the figure rough
  fine_tuning,         ///< adapters, or packed sequences of unknown lengths
  hybrid_model,        ///< layers of another kind than attention, or of an unpublished kind
  unknown_device,
  unknown_framework, ///< no semantics for it
  unsupported_precision,
  unsupported_schedule,
  unsupported_sharding,
  unsupported_recompute,
  unsupported_optimizer,
  unsupported_feature, ///< something else of the run that is not modelled
  inconsistent,        ///< degrees that do not multiply to the number of devices
  outcome,             ///< the run ended for a reason that is no matter of the layout
  time_from_mfu,       ///< the time was computed from a rate of FLOP and no memory was measured
  nothing_measured,
};
[[nodiscard]] std::string_view id_of(SkipReason reason);
[[nodiscard]] std::string_view id_of(MemoryKind kind);

struct Skip {
  SkipReason reason = SkipReason::missing;
  std::string detail; ///< the column or the value
  bool operator==(const Skip&) const = default;
};
/// "missing vocab".
[[nodiscard]] std::string to_string(const Skip& skip);

/// A row as a plan and the figures to compare with.
struct MeasuredPlan {
  Plan plan;
  std::optional<Seconds> step_time; ///< absent: not measured, or derived from a rate of FLOP
  std::optional<Bytes> memory;
  MemoryKind memory_kind = MemoryKind::unstated;
  MemoryRank memory_rank = MemoryRank::unstated;
  bool unsteady = false;                ///< the quartiles of its steps lie further apart than a tenth of the median
  bool out_of_memory = false;           ///< the run ended so
  std::vector<std::string> notes;       ///< what was assumed
  std::vector<std::string> memory_open; ///< as of the row
  bool operator==(const MeasuredPlan&) const = default;
};

/// Texts of the sources and what they are here: data/assumptions/names.json.
struct MeasuredNames {
  struct Machine {
    std::string device;
    std::string cluster; ///< preset whose node and network stand for it
    bool operator==(const Machine&) const = default;
  };
  std::map<std::string, Machine> machines;       ///< by the text of column gpu
  std::map<std::string, std::string> frameworks; ///< to a semantics id
  std::map<std::string, std::string> precisions;
  std::map<std::string, std::string> schedules;
  std::map<std::string, std::string> sharding;
  std::map<std::string, std::string> presets; ///< model texts whose row alone does not tell the model
  bool operator==(const MeasuredNames&) const = default;
};
[[nodiscard]] Result<MeasuredNames> read_measured_names(const DataFolder& data);

/// The plan of a row, or why there is none. Errors are those of the data folder (a preset that does not read).
[[nodiscard]] Result<tl::expected<MeasuredPlan, Skip>> plan_of(const Measurement& row, const MeasuredNames& names,
                                                               const DataFolder& data);

/// The printed time, else sequences * length / (devices * tokens per second and device).
[[nodiscard]] std::optional<Seconds> measured_step_time(const Measurement& row);

/// True when the notes say that the time was computed from FLOP: such a time repeats an assumption about FLOP.
[[nodiscard]] bool time_is_derived_from_flop(const Measurement& row);

/// What the notes of a row state in a fixed form ("mla=q_lora=1536,…", "shared expert ffn 2048"), as extras.
[[nodiscard]] std::map<std::string, std::string> extras_in_notes(const std::string& notes);

} // namespace foretrain
