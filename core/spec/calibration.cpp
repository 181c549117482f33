#include "core/spec/calibration.h"

#include <algorithm>
#include <cctype>
#include <system_error>

#include "core/base/describe.h"
#include "core/spec/describe_plan.h"

namespace foretrain {

template <> struct EnumNames<TableKind> {
  static constexpr std::array names = {
      std::pair{TableKind::all_reduce, "all-reduce"}, std::pair{TableKind::all_gather, "all-gather"},
      std::pair{TableKind::reduce_scatter, "reduce-scatter"}, std::pair{TableKind::all_to_all, "all-to-all"}};
};

namespace {

/// Every part must say where its figures come from.
template <class Part> Result<void> check_source(const Part& part, const Where& where) {
  if (part.source.empty()) return fail(where.at("source").text(), "the source is empty");
  return {};
}

} // namespace

template <> struct Described<GemmModel> {
  static constexpr const char* name = "gemm";
  static constexpr const char* doc = "Efficiency of dense matrix products.";
  static constexpr auto members = std::tuple{
      required("efficiency", &GemmModel::efficiency,
               "sustained share of the bf16 peak, large forward products; above 1 where that peak is nominal")
          .between(0.001, 4),
      optional("fp8", &GemmModel::fp8, "the same against the fp8 peak").between(0.001, 1),
      optional("fp4", &GemmModel::fp4, "the same against the fp4 peak").between(0.001, 1),
      optional("input_gradient", &GemmModel::input_gradient, "relative to forward").between(0.1, 2),
      optional("weight_gradient", &GemmModel::weight_gradient, "relative to forward").between(0.1, 2),
      optional("tail", &GemmModel::tail, "exponent of the last wave's occupancy").between(0, 1),
      optional("half_k", &GemmModel::half_k, "inner width of half efficiency").between(0, 1e6),
      optional("half_tokens", &GemmModel::half_tokens, "tokens of half efficiency").between(0, 1e6),
      optional("overhead", &GemmModel::overhead, "ramp up and down of one kernel").between(0, 1),
      required("multiprocessors", &GemmModel::multiprocessors, "processors that take tiles").between(1, 100000),
      required("evidence", &GemmModel::evidence, "what the figures rest on"),
      required("source", &GemmModel::source, "where they come from")};
  static Result<void> check(const GemmModel& value, const Where& where) { return check_source(value, where); }
};
template <> struct Described<AttentionPoint> {
  static constexpr const char* name = "attention point";
  static constexpr const char* doc = "Efficiency of attention at one head width.";
  static constexpr auto members =
      std::tuple{required("head_dim", &AttentionPoint::head_dim, "width of queries and keys").between(1, 4096),
                 required("forward", &AttentionPoint::forward, "share of the bf16 peak").between(0.001, 4),
                 required("backward", &AttentionPoint::backward, "share of the bf16 peak").between(0.001, 4)};
};
template <> struct Described<AttentionModel> {
  static constexpr const char* name = "attention";
  static constexpr const char* doc = "Efficiency of flash attention.";
  static constexpr auto members = std::tuple{
      required("heads", &AttentionModel::heads, "efficiency by head width, ascending"),
      required("half_sequence", &AttentionModel::half_sequence, "sequence of half efficiency").between(0, 1e6),
      required("half_blocks", &AttentionModel::half_blocks, "query blocks of half efficiency").between(0, 1e6),
      optional("overhead", &AttentionModel::overhead, "ramp up and down of one kernel").between(0, 1),
      required("evidence", &AttentionModel::evidence, "what the figures rest on"),
      required("source", &AttentionModel::source, "where they come from")};
  static Result<void> check(const AttentionModel& value, const Where& where) {
    if (value.heads.empty()) return fail(where.at("heads").text(), "the list is empty");
    for (std::size_t i = 1; i < value.heads.size(); ++i)
      if (value.heads[i].head_dim <= value.heads[i - 1].head_dim)
        return fail(where.at("heads").text(), "head widths do not ascend");
    return check_source(value, where);
  }
};
template <> struct Described<GroupedModel> {
  static constexpr const char* name = "grouped gemm";
  static constexpr const char* doc = "Tokens per expert at which a grouped product has half the dense efficiency.";
  static constexpr auto members =
      std::tuple{required("forward", &GroupedModel::forward, "tokens per expert").between(0, 1e6),
                 required("input_gradient", &GroupedModel::input_gradient, "tokens per expert").between(0, 1e6),
                 required("weight_gradient", &GroupedModel::weight_gradient, "tokens per expert").between(0, 1e6),
                 required("evidence", &GroupedModel::evidence, "what the figures rest on"),
                 required("source", &GroupedModel::source, "where they come from")};
  static Result<void> check(const GroupedModel& value, const Where& where) { return check_source(value, where); }
};
template <> struct Described<MemoryModel> {
  static constexpr const char* name = "memory";
  static constexpr const char* doc = "Memory-bound kernels and copies to the host.";
  static constexpr auto members =
      std::tuple{required("efficiency", &MemoryModel::efficiency, "share of peak bandwidth").between(0.001, 1),
                 required("host", &MemoryModel::host, "share of the host link").between(0.001, 1),
                 required("launch", &MemoryModel::launch, "gap per kernel when the host is ahead").between(0, 1),
                 required("evidence", &MemoryModel::evidence, "what the figures rest on"),
                 required("source", &MemoryModel::source, "where they come from")};
  static Result<void> check(const MemoryModel& value, const Where& where) { return check_source(value, where); }
};
template <> struct Described<OperatorModel> {
  static constexpr const char* name = "operator";
  static constexpr const char* doc = "Speed of one kind of memory-bound operator.";
  static constexpr auto members =
      std::tuple{required("op", &OperatorModel::op, "its name in a Program"),
                 optional("backward", &OperatorModel::backward, "of gradients"),
                 required("bandwidth", &OperatorModel::bandwidth, "of the bytes that it moves").between(1, 1e15),
                 required("launch", &OperatorModel::launch, "per kernel").between(0, 1)};
};
template <> struct Described<FabricModel> {
  static constexpr const char* name = "fabric";
  static constexpr const char* doc = "Alpha-beta constants of one kind of link.";
  static constexpr auto members = std::tuple{
      required("efficiency", &FabricModel::efficiency, "share of the link, rings").between(0.001, 1),
      optional("reduction", &FabricModel::reduction, "all-reduce in the switch: bus bandwidth / link").between(0, 4),
      optional("reduction_from", &FabricModel::reduction_from, "smallest group that uses it").between(0, 100000),
      required("all_to_all", &FabricModel::all_to_all, "share of the link, all-to-all").between(0.001, 1),
      required("point_to_point", &FabricModel::point_to_point, "share of the link, one send").between(0.001, 1),
      required("steps", &FabricModel::steps, "link latencies per ring step, bulk").between(0, 1000),
      required("steps_small", &FabricModel::steps_small, "link latencies per ring step, low latency").between(0, 1000),
      required("small_share", &FabricModel::small_share, "bandwidth of the low-latency protocol").between(0.001, 1),
      required("base", &FabricModel::base, "start of a collective").between(0, 1),
      required("evidence", &FabricModel::evidence, "what the figures rest on"),
      required("source", &FabricModel::source, "where they come from")};
  static Result<void> check(const FabricModel& value, const Where& where) { return check_source(value, where); }
};
template <> struct Described<CollectiveTable> {
  static constexpr const char* name = "collective table";
  static constexpr const char* doc = "Measured durations of a collective by message size.";
  static constexpr auto members =
      std::tuple{required("kind", &CollectiveTable::kind, "which collective"),
                 required("per_node", &CollectiveTable::per_node, "devices per node").between(1, 100000),
                 optional("nodes", &CollectiveTable::nodes, "nodes").between(1, 100000),
                 optional("network", &CollectiveTable::network, "network per device; nodes > 1").between(1, 1e15),
                 optional("latency", &CollectiveTable::latency,
                          "latency of the link that it was measured on; needed with nodes > 1")
                     .between(0, 1),
                 required("log2_bytes", &CollectiveTable::log2_bytes, "sizes, ascending").between(0, 50),
                 required("microseconds", &CollectiveTable::microseconds, "durations").between(0.001, 1e12),
                 required("evidence", &CollectiveTable::evidence, "what the figures rest on"),
                 required("source", &CollectiveTable::source, "where they come from")};
  static Result<void> check(const CollectiveTable& value, const Where& where) {
    if (value.log2_bytes.size() < 2) return fail(where.at("log2_bytes").text(), "fewer than two sizes");
    if (value.log2_bytes.size() != value.microseconds.size())
      return fail(where.at("microseconds").text(), "not as many durations as sizes");
    for (std::size_t i = 1; i < value.log2_bytes.size(); ++i) {
      if (value.log2_bytes[i] <= value.log2_bytes[i - 1])
        return fail(where.at("log2_bytes").text(), "sizes do not ascend");
      if (value.microseconds[i] < value.microseconds[i - 1])
        return fail(where.at("microseconds").text(), "a duration falls with size");
    }
    if (value.nodes > 1 && (!value.network || !value.latency))
      return fail(where.text(), "a table over several nodes needs network and latency");
    return check_source(value, where);
  }
};
template <> struct Described<InStepModel> {
  static constexpr const char* name = "in step";
  static constexpr const char* doc = "What a collective takes in a step beyond what it takes by itself.";
  static constexpr auto members =
      std::tuple{required("wait", &InStepModel::wait, "per collective").between(0, 10),
                 required("stretch", &InStepModel::stretch, "share of its own time").between(0, 100)};
};
template <> struct Described<InterferenceModel> {
  static constexpr const char* name = "interference";
  static constexpr const char* doc = "What communication takes from compute beside it.";
  static constexpr auto members = std::tuple{
      required("inside", &InterferenceModel::inside, "compute speed lost, scale-up collectives").between(0, 0.99),
      required("network", &InterferenceModel::network, "compute speed lost, network collectives").between(0, 0.99),
      required("point_to_point", &InterferenceModel::point_to_point, "compute speed lost, transfers").between(0, 0.99),
      required("transfer_rate", &InterferenceModel::transfer_rate, "rate of a collective beside compute")
          .between(0.01, 1),
      required("evidence", &InterferenceModel::evidence, "what the figures rest on"),
      required("source", &InterferenceModel::source, "where they come from")};
  static Result<void> check(const InterferenceModel& value, const Where& where) { return check_source(value, where); }
};
template <> struct Described<Calibration> {
  static constexpr const char* name = "calibration";
  static constexpr const char* doc = "How fast a device really is.";
  static constexpr auto members = std::tuple{
      required("name", &Calibration::name, "device, or family-…"),
      required("gemm", &Calibration::gemm, "dense matrix products"),
      required("attention", &Calibration::attention, "flash attention"),
      required("grouped", &Calibration::grouped, "grouped products of experts"),
      required("memory", &Calibration::memory, "memory-bound kernels"),
      optional("operators", &Calibration::operators, "memory-bound operators that run at figures of their own"),
      optional("inner_link", &Calibration::inner_link, "scale-up link of the tables").between(1, 1e15),
      required("inner", &Calibration::inner, "links inside the scale-up domain"),
      required("network", &Calibration::network, "links between nodes"),
      optional("collectives", &Calibration::collectives, "measured durations"),
      optional("in_step", &Calibration::in_step, "collectives between compute"),
      required("interference", &Calibration::interference, "compute beside communication"),
      optional("spread", &Calibration::spread, "relative standard deviation of speed between devices").between(0, 1),
      optional("notes", &Calibration::notes, "remarks")};
};

Result<Calibration> calibration_from(const Json& json, const std::string& file) {
  return read_value<Calibration>(json, Where{file, ""});
}

Json to_json(const Calibration& calibration) {
  return write_value(calibration);
}

namespace {

std::string lower_with_dashes(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return c == ' ' ? '-' : static_cast<char>(std::tolower(c)); });
  return text;
}

bool plain_name(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; });
}

Result<Calibration> read_calibration(const std::filesystem::path& path) {
  FORETRAIN_TRY(const Json json, read_json_file(path));
  return calibration_from(json, path.string());
}

} // namespace

Result<Calibration> load_calibration(const std::filesystem::path& data, const DeviceSpec& device) {
  const std::filesystem::path folder = data / "calibrations";
  std::error_code error;
  if (plain_name(device.name)) {
    const std::filesystem::path own = folder / (device.name + ".json");
    if (std::filesystem::is_regular_file(own, error)) return read_calibration(own);
  }
  std::filesystem::path family = folder / "family-generic.json";
  const std::string architecture = lower_with_dashes(device.architecture);
  if (plain_name(architecture)) {
    const std::filesystem::path named = folder / ("family-" + architecture + ".json");
    if (std::filesystem::is_regular_file(named, error)) family = named;
  }
  FORETRAIN_TRY(Calibration calibration, read_calibration(family));
  calibration.gemm.evidence = calibration.attention.evidence = calibration.grouped.evidence = Evidence::datasheet;
  calibration.memory.evidence = calibration.inner.evidence = calibration.network.evidence = Evidence::datasheet;
  calibration.interference.evidence = Evidence::datasheet;
  return calibration;
}

} // namespace foretrain
