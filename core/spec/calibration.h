#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/result.h"
#include "core/base/units.h"
#include "core/spec/cluster.h"
#include "core/spec/prediction.h"

/// How fast a device really is: one value per device, derived from published kernel and collective measurements by
/// scripts/calibrate-from-tables. Every part says on what evidence it rests and where its figures come from.
namespace foretrain {

/// Dense matrix products. Time = overhead + FLOP / (peak · efficiency · k/(k + half_k) · occupancy^tail), where
/// occupancy is the useful share of the last wave of tiles (docs/formulas.md, "Kernel time").
struct GemmModel {
  double efficiency = 0;      ///< sustained share of the dense bf16/fp16 peak, large products, forward
  std::optional<double> fp8;  ///< the same against the fp8 peak; absent: as bf16
  std::optional<double> fp4;  ///< the same against the fp4 peak; absent: as fp8
  double input_gradient = 1;  ///< efficiency of the input-gradient product relative to forward
  double weight_gradient = 1; ///< efficiency of the weight-gradient product relative to forward
  double tail = 0.4;          ///< exponent that softens the last wave; 1 = hard waves, 0 = none
  double half_k = 100;        ///< inner width at which half the efficiency is reached
  double half_tokens = 0;     ///< tokens at which half the efficiency is reached: processors pack each weight anew
  Seconds overhead;           ///< ramp up and down of one kernel
  int multiprocessors = 0;    ///< processors that take tiles
  Evidence evidence = Evidence::datasheet;
  std::string source;
  bool operator==(const GemmModel&) const = default;
};

/// Efficiency at one head width, very long sequences and many heads, against the dense bf16 peak; FLOP as executed
/// (causal mask applied, backward 2.5 times forward).
struct AttentionPoint {
  int head_dim = 0;
  double forward = 0;
  double backward = 0;
  bool operator==(const AttentionPoint&) const = default;
};

/// Flash attention. Time = overhead + FLOP / (peak · efficiency) · (1 + half_sequence/s) · (1 + half_blocks/blocks)
/// with s = twice the mean keys per query and blocks = sequences · heads · ceil(queries / 128).
struct AttentionModel {
  std::vector<AttentionPoint> heads; ///< ascending head width
  double half_sequence = 0;
  double half_blocks = 0;
  Seconds overhead;
  double flash_2 = 1; ///< speed of FlashAttention-2 relative to this; set by `on_device`
  Evidence evidence = Evidence::datasheet;
  std::string source;
  bool operator==(const AttentionModel&) const = default;
};

/// Grouped products of experts: efficiency = dense · x/(x + half), x tokens per expert.
struct GroupedModel {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;
  Evidence evidence = Evidence::datasheet;
  std::string source;
  bool operator==(const GroupedModel&) const = default;
};

struct MemoryModel {
  double efficiency = 0; ///< share of peak bandwidth of streaming kernels
  double host = 0;       ///< share of the host link of large copies
  Seconds launch;        ///< gap per kernel when the host is ahead
  double streaming =
      1; ///< traffic of a framework's small kernels relative to their operators' bytes; set by `on_device`
  Evidence evidence = Evidence::datasheet;
  std::string source;
  bool operator==(const MemoryModel&) const = default;
};

/// Speed of one kind of memory-bound operator of this device: those of a processor differ in arithmetic, and in whether
/// what they move lies in a cache. An operator that is not listed runs at `MemoryModel`'s figures.
struct OperatorModel {
  std::string op;           ///< as ops are named in a Program: "norm", "optimizer"
  bool backward = false;    ///< of gradients
  BytesPerSecond bandwidth; ///< of the bytes that its kernels move
  Seconds launch;           ///< per kernel
  bool operator==(const OperatorModel&) const = default;
};

/// Alpha-beta constants of one kind of link. A step of a ring costs `steps` link latencies.
struct FabricModel {
  double efficiency = 0;     ///< share of the link that rings reach with large messages
  double reduction = 0;      ///< all-reduce in the switch (NVLS): bus bandwidth / link bandwidth; 0 = none
  int reduction_from = 0;    ///< smallest group that uses it
  double all_to_all = 0;     ///< share of the link that large all-to-alls reach
  double point_to_point = 0; ///< share of the link that one send reaches
  double steps = 0;          ///< link latencies per ring step, bulk protocol
  double steps_small = 0;    ///< link latencies per ring step, low-latency protocol
  double small_share = 0;    ///< bandwidth of the low-latency protocol relative to bulk
  Seconds base;              ///< start of a collective
  Evidence evidence = Evidence::datasheet;
  std::string source;
  bool operator==(const FabricModel&) const = default;
};

enum class TableKind { all_reduce, all_gather, reduce_scatter, all_to_all };

/// Measured durations of one collective on one group shape, by message size. Sizes as nccl-tests counts them:
/// all-gather and reduce-scatter the whole buffer, all-to-all what one rank sends (its own share included).
struct CollectiveTable {
  TableKind kind = TableKind::all_reduce;
  int per_node = 0;
  int nodes = 1;
  std::optional<BytesPerSecond> network; ///< per-device network of a table with nodes > 1
  std::optional<Seconds> latency;   ///< LinkSpec::latency of the links: of that network; inside a node, of its switch
                                    ///< where it is not the default
  std::vector<double> log2_bytes;   ///< ascending
  std::vector<double> microseconds; ///< never falling
  Evidence evidence = Evidence::measured;
  std::string source;
  bool operator==(const CollectiveTable&) const = default;
};

/// What communication takes from compute that runs beside it.
struct InterferenceModel {
  double inside = 0;         ///< share of compute speed lost while a collective runs inside the scale-up domain
  double network = 0;        ///< the same while one runs over the network
  double point_to_point = 0; ///< the same for a pipeline transfer
  double transfer_rate = 1;  ///< rate of a collective beside compute, relative to alone
  Evidence evidence = Evidence::datasheet;
  std::string source;
  bool operator==(const InterferenceModel&) const = default;
};

/// What a collective takes between the compute of a step beyond what it takes by itself, over and over: its ranks do
/// not come at once, a processor that slept has to wake, and what it moves lies in no cache.
struct InStepModel {
  Seconds wait;       ///< per collective
  double stretch = 0; ///< share of its own time
  bool operator==(const InStepModel&) const = default;
};

struct Calibration {
  std::string name; ///< device, or "family-…"
  GemmModel gemm;
  AttentionModel attention;
  GroupedModel grouped;
  MemoryModel memory;
  std::vector<OperatorModel> operators;     ///< evidence and source are those of `memory`
  std::optional<BytesPerSecond> inner_link; ///< scale-up link that the tables with nodes = 1 were measured on
  FabricModel inner;                        ///< inside the scale-up domain
  FabricModel network;                      ///< between nodes
  std::vector<CollectiveTable> collectives;
  InStepModel in_step; ///< evidence and source are those of `interference`
  InterferenceModel interference;
  double spread = 0; ///< relative standard deviation of compute speed between devices of one cluster
  std::string notes;
  bool operator==(const Calibration&) const = default;
};

[[nodiscard]] Result<Calibration> calibration_from(const Json& json, const std::string& file);
[[nodiscard]] Json to_json(const Calibration& calibration);

/// The calibration of a device: `data`/calibrations/<device>.json, else the one of its family
/// (family-<architecture>.json), else family-generic.json; of a family, every evidence is `datasheet`.
/// Error: no such folder, a file that does not read.
[[nodiscard]] Result<Calibration> load_calibration(const std::filesystem::path& data, const DeviceSpec& device);

} // namespace foretrain
