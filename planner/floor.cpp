#include <algorithm>

#include "planner/evaluate_data.h"

/// What layouts take at least. Whatever an evaluation adds to its blocks (transfers and collectives beside them,
/// waiting) makes a step longer and fuller, never shorter or emptier: what the blocks take alone, in the order that
/// every schedule must keep, bounds both from below.
namespace foretrain {
namespace {

constexpr double kRounding = 1e-9; ///< sums of the same terms in another order differ by less

} // namespace

const ChunkFloor& StageCache::floor(std::size_t kind, const RecomputeChoice& recompute) {
  CacheKey key;
  add_kind(key, kinds_[kind]);
  const bool full = recompute.kind == RecomputeKind::full;
  key.add(static_cast<std::int32_t>(full ? static_cast<std::uint64_t>(recompute.method)
                                         : choice_key(recompute, study_.shapes)));
  key.add(full ? recompute.count.value_or(0) : -1);
  const auto [entry, added] = base_->floors.try_emplace(key);
  ChunkFloor& floor = entry->second;
  if (!added) return floor;
  Block::Memory backward;
  const Pass freeing = view_.split_backward ? Pass::input : Pass::backward;
  const std::vector<Run>& runs = runs_of(view_, kinds_[kind], recompute).list;
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const TimedBlock& timed = block_of(*base_, view_, run->block, recompute);
    for (int i = 0; i < run->count; ++i) backward = then(backward, timed.memory.memory(freeing));
    floor.retained += timed.memory.forward_memory.net * run->count;
    for (std::size_t pass = 0; pass < kPasses; ++pass) {
      const BlockTime& time = timed.times[pass];
      floor.seconds[pass] += time.seconds * run->count;
      floor.compute +=
          (time.compute + time.parts[static_cast<std::size_t>(TimePart::host)].value - time.pad) * run->count;
    }
  }
  floor.backward_peak = backward.peak;
  return floor;
}

/// A stage begins once its first micro-batch has come through the stages before it, runs all its slots, and what its
/// last backward makes goes back through the same stages. Where no stage waits for another at the step's end, the own
/// span of the stage is that without the wait before, and all that comes until the first stage's end is of its span.
double Evaluator::Worker::Data::least_seconds() {
  const auto per_stage = static_cast<std::size_t>(shape.chunks);
  const double m = shape.micro_batches;
  // Where collectives run in every micro-batch, what a first and a last slot take is told by differences between slots.
  const double sure = remembers ? std::max(0.0, m - 2) : m;
  const auto gradient = slot_pass(split() ? Pass::input : Pass::backward);
  double before = 0; // until the stage's first input is there
  double after = 0;  // from its last gradient on
  const auto step_end = [&](std::size_t stage) {
    return apart ? states[stage]->step_seconds : states[stage]->step_before;
  };
  double end = 0;
  double busiest = 0;
  for (std::size_t stage = 0; stage < states.size(); ++stage) {
    double slots = 0;
    double late = 0; // of these, what need not be done when the last gradient is
    double compute = states[stage]->step_compute;
    for (std::size_t at = stage * per_stage; at < (stage + 1) * per_stage; ++at) {
      const ChunkFloor& chunk = *chunks[kinds[at]];
      slots += sure * (chunk.seconds[slot_pass(Pass::forward)] + chunk.seconds[gradient]);
      late += sure * chunk.seconds[slot_pass(Pass::weight)];
      compute += m * chunk.compute;
    }
    const double own = (apart ? 0 : before) + slots + late + step_end(stage);
    end = std::max({end, own, before + slots + after + step_end(0)});
    busiest = std::max(busiest, compute);
    const ChunkFloor& first = *chunks[kinds[stage * per_stage]];
    before += first.seconds[slot_pass(Pass::forward)];
    after += first.seconds[gradient];
  }
  end /= shared->study.cluster.ranks_per_processor; // others may wait all the time
  return (end + step_tail() + host_step() + shared->straggling * busiest) * (1 - kRounding);
}

/// The first and the last stage hold what as many micro-batches retain as are in flight, and then run a backward.
Evaluator::Worker::Least Evaluator::Worker::Data::least_bytes(bool peaks) {
  const auto per_stage = static_cast<std::size_t>(shape.chunks);
  const std::size_t depths = kinds.size();
  Least most;
  for (const std::size_t stage : {std::size_t{0}, states.size() - 1}) {
    // Split backwards free part of what a pair holds in between: of those, one pair is sure.
    const int pairs = split() ? 1 : schedule->peak_in_flight(shape, static_cast<int>(stage));
    Bytes retained;
    Bytes peak;
    for (std::size_t c = 0; c < per_stage; ++c) {
      const std::size_t depth = c * states.size() + stage;
      const ChunkFloor& chunk = *chunks[kinds[stage * per_stage + c]];
      Bytes own = chunk.retained;
      if (depth > 0) own += boundary; // its input comes in, its output goes on
      if (depth + 1 < depths) own = own - boundary;
      retained = c == 0 ? own : std::min(retained, own);
      const Bytes above = peaks ? chunk.backward_peak + (depth + 1 < depths ? boundary : Bytes(0)) : Bytes(0);
      peak = c == 0 ? above : std::min(peak, above);
    }
    const StageState& state = *states[stage];
    const Bytes allocated = state.persistent + std::max(state.step_peak, retained * pairs + std::max(Bytes(0), peak));
    const Bytes fragments(static_cast<std::int64_t>(fragmentation * static_cast<double>(allocated.value)));
    if (const Bytes bytes = allocated + fragments + state.outside; bytes > most.bytes)
      most = {bytes, static_cast<int>(stage)};
  }
  return most;
}

void Evaluator::Worker::Data::take_chunks(const RecomputeChoice& recompute) {
  chunks.clear();
  for (std::size_t kind = 0; kind < kind_depths.size(); ++kind) chunks.push_back(&cache.floor(kind, recompute));
}

void Evaluator::Worker::floors(const Layout& layout, std::span<const RecomputeChoice> choices, std::span<Floor> into) {
  data_->outline(layout);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    data_->take_chunks(choices[i]);
    const Least memory = data_->least_bytes(true);
    into[i] = {data_->least_seconds(), memory.bytes.value, memory.stage};
  }
}

/// Recomputation adds time. It frees what whole layers free at most, but may have a higher peak of its own.
Floor Evaluator::Worker::floor(const Layout& layout) {
  data_->outline(layout);
  RecomputeChoice full;
  full.kind = RecomputeKind::full;
  data_->take_chunks({});
  const double seconds = data_->least_seconds();
  data_->take_chunks(full);
  const Least memory = data_->least_bytes(false);
  return {seconds, memory.bytes.value, memory.stage};
}

} // namespace foretrain
