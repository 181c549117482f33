#include "db/layout_code.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace foretrain {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLongestList = 1 << 16;

/// Numbers of seven bits a byte, the lowest first; the high bit says that another byte follows.
class Writer {
public:
  void number(std::uint32_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>((value & 0x7f) | 0x80);
    text_ += static_cast<char>(value);
  }
  void number(int value) { number(static_cast<std::uint32_t>(value)); }
  template <class E> void choice(E value) { number(static_cast<std::uint32_t>(value)); }
  /// 0: absent.
  void optional(const std::optional<int>& value) { number(value ? static_cast<std::uint32_t>(*value) + 1 : 0U); }
  template <class List> void list(const List& values) {
    number(static_cast<std::uint32_t>(values.size()));
    for (const auto value : values) number(static_cast<std::uint32_t>(value));
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

private:
  std::string text_;
};

class Reader {
public:
  explicit Reader(std::string_view text) : text_(text) {}
  std::uint32_t number() {
    std::uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      if (text_.empty()) return fail();
      const auto byte = static_cast<unsigned char>(text_.front());
      text_.remove_prefix(1);
      value |= static_cast<std::uint32_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return fail();
  }
  int degree() {
    const auto value = static_cast<int>(number());
    return value >= 1 ? value : static_cast<int>(fail());
  }
  template <class E> E choice(E last) {
    const std::uint32_t value = number();
    return value <= static_cast<std::uint32_t>(last) ? static_cast<E>(value) : static_cast<E>(fail());
  }
  std::optional<int> optional() {
    const std::uint32_t value = number();
    return value == 0 ? std::nullopt : std::optional<int>(static_cast<int>(value - 1));
  }
  std::size_t length() {
    const std::uint32_t value = number();
    return value <= kLongestList ? value : fail();
  }
  [[nodiscard]] bool done() const { return good_ && text_.empty(); }

private:
  std::uint32_t fail() {
    good_ = false;
    text_ = {};
    return 0;
  }
  std::string_view text_;
  bool good_ = true;
};

enum Switch : std::uint32_t {
  kSequenceParallel = 1,
  kOffloadOptimizer = 2,
  kOverlapTp = 4,
  kOverlapGradients = 8,
  kOverlapParameters = 16,
  kOverlapP2p = 32,
  kOverlapMoe = 64,
  kHasGroup = 128, ///< a group of micro-batches follows the chunks
};

std::uint32_t switches_of(const Layout& l) {
  return (l.sequence_parallel ? kSequenceParallel : 0U) | (l.offload.optimizer ? kOffloadOptimizer : 0U) |
         (l.overlap.tp ? kOverlapTp : 0U) | (l.overlap.dp_gradients ? kOverlapGradients : 0U) |
         (l.overlap.dp_parameters ? kOverlapParameters : 0U) | (l.overlap.p2p ? kOverlapP2p : 0U) |
         (l.overlap.moe ? kOverlapMoe : 0U) | (l.schedule.group > 0 ? kHasGroup : 0U);
}

void set_switches(std::uint32_t bits, Layout& l) {
  l.sequence_parallel = (bits & kSequenceParallel) != 0;
  l.offload.optimizer = (bits & kOffloadOptimizer) != 0;
  l.overlap.tp = (bits & kOverlapTp) != 0;
  l.overlap.dp_gradients = (bits & kOverlapGradients) != 0;
  l.overlap.dp_parameters = (bits & kOverlapParameters) != 0;
  l.overlap.p2p = (bits & kOverlapP2p) != 0;
  l.overlap.moe = (bits & kOverlapMoe) != 0;
}

std::string written(const Layout& l) {
  Writer out;
  out.number(kVersion);
  for (const int degree : {l.tp, l.pp, l.cp, l.ep, l.etp, l.dp_shard, l.dp_replicate, l.micro_batch})
    out.number(degree);
  for (const Axis axis : l.placement) out.choice(axis);
  out.number(switches_of(l));
  const auto kind = std::find(kScheduleKinds.begin(), kScheduleKinds.end(), l.schedule.kind);
  out.number(static_cast<std::uint32_t>(kind - kScheduleKinds.begin()));
  out.number(l.schedule.chunks);
  if (l.schedule.group > 0) out.number(l.schedule.group);
  out.list(l.layers_per_stage);
  out.choice(l.sharding.kind);
  const auto& reshard = l.sharding.reshard_after_forward;
  out.optional(reshard ? std::optional<int>(*reshard ? 1 : 0) : std::nullopt);
  out.choice(l.context_parallel.kind);
  out.number(l.context_parallel.ulysses);
  out.choice(l.expert_dispatch.kind);
  out.choice(l.recompute.kind);
  out.choice(l.recompute.method);
  out.optional(l.recompute.count);
  out.list(l.recompute.modules);
  return out.take();
}

} // namespace

std::string layout_code(const Layout& layout) {
  std::string code = written(layout);
  // Whatever the code leaves out is found here: a member of tomorrow, a schedule without a number.
  const auto again = layout_from_code(code);
  return again && *again == layout ? code : std::string();
}

std::optional<Layout> layout_from_code(std::string_view code) {
  Reader in(code);
  if (in.number() != kVersion) return std::nullopt;
  Layout l;
  for (int* degree : {&l.tp, &l.pp, &l.cp, &l.ep, &l.etp, &l.dp_shard, &l.dp_replicate, &l.micro_batch})
    *degree = in.degree();
  std::array<bool, 4> placed{};
  for (Axis& axis : l.placement) {
    axis = in.choice(Axis::pp);
    placed[static_cast<std::size_t>(axis)] = true;
  }
  const std::uint32_t switches = in.number();
  set_switches(switches, l);
  const std::uint32_t kind = in.number();
  if (kind >= kScheduleKinds.size()) return std::nullopt;
  l.schedule.kind = kScheduleKinds[kind];
  l.schedule.chunks = in.degree();
  if ((switches & kHasGroup) != 0) l.schedule.group = in.degree();
  l.layers_per_stage.resize(in.length());
  for (int& layers : l.layers_per_stage) layers = static_cast<int>(in.number());
  l.sharding.kind = in.choice(ShardingKind::parameters);
  if (const auto reshard = in.optional()) l.sharding.reshard_after_forward = *reshard != 0;
  l.context_parallel.kind = in.choice(ContextKind::ulysses_ring);
  l.context_parallel.ulysses = in.degree();
  l.expert_dispatch.kind = in.choice(DispatchKind::deduplicated);
  l.recompute.kind = in.choice(RecomputeKind::operators);
  l.recompute.method = in.choice(RecomputeMethod::block);
  l.recompute.count = in.optional();
  l.recompute.modules.resize(in.length());
  for (RecomputeModule& module : l.recompute.modules) module = in.choice(RecomputeModule::moe);
  const bool whole = std::all_of(placed.begin(), placed.end(), [](bool yes) { return yes; });
  if (!in.done() || !whole) return std::nullopt;
  return l;
}

} // namespace foretrain
