#include <algorithm>

#include "core/program/schedules/zero_bubble.h"

/// The scheduler under a memory cap (Qi et al. 2023, arXiv:2401.10241, section 3;
/// sail-sg/zero-bubble-pipeline-parallelism
/// @39f2c186 megatron/core/pipeline_parallel/zerobubble/scheduler/zb.py). Theirs places slot by slot; here the same
/// three decisions are two numbers per stage, which keeps orders short to describe and their middle the same in every
/// round. Why: docs/decisions/0007-schedules-by-cost.md.
namespace foretrain {
namespace {

int divided_up(int a, int b) {
  return (a + b - 1) / b;
}

/// As many forwards as `wanted` asks for, as much lag as memory leaves and the costs need.
///
/// Until its first I the last stage has one F, and then F and I in turn while it puts W off; so have the others, each
/// an f + i behind the next. Stage i thus gets its first gradient (p - 1 - i)(f + i) after its first F, which that much
/// over f forwards fill; and stage i begins as much later as i transfers and computes of f, and must not make the ones
/// before it wait for i (f + i) of W, which is that much over w weight gradients. Retained: its forwards, and `kept` of
/// each W.
template <class Wanted> ZeroBubblePattern filled(int stages, int most, const SlotWeights& weights, Wanted&& wanted) {
  ZeroBubblePattern pattern;
  const int each = weights.forward + weights.input;
  for (int stage = 0; stage < stages; ++stage) {
    const int warm = std::min(wanted(stages - 1 - stage), most - 1);
    const int room = (most - warm - 1) * SlotWeights::kWhole / weights.kept;
    pattern.warm.push_back(warm);
    pattern.lag.push_back(std::min(room, divided_up(stage * each, weights.weight)));
  }
  return pattern;
}

/// A stage's slots one after the other, without a list of them.
class Line {
public:
  Line(const ZeroBubblePattern& pattern, std::size_t stage, int micro_batches)
      : warm_(std::min(pattern.warm[stage], micro_batches)), lag_(pattern.lag[stage]), m_(micro_batches) {}
  bool done() const { return weights_ == m_; }
  Pass pass() const {
    if (forwards_ < std::min(warm_ + inputs_ + 1, m_) && !owes()) return Pass::forward;
    return owes() || inputs_ == m_ ? Pass::weight : Pass::input;
  }
  int micro_batch() const {
    const Pass next = pass();
    return next == Pass::forward ? forwards_ : next == Pass::input ? inputs_ : weights_;
  }
  void advance() {
    const Pass next = pass();
    ++(next == Pass::forward ? forwards_ : next == Pass::input ? inputs_ : weights_);
  }

private:
  bool owes() const { return inputs_ - lag_ > weights_; }
  int warm_, lag_, m_;
  int forwards_ = 0, inputs_ = 0, weights_ = 0;
};

} // namespace

long long zero_bubble_span(const ZeroBubblePattern& pattern, const SlotWeights& weights, int micro_batches) {
  const std::size_t stages = pattern.warm.size();
  const auto m = static_cast<std::size_t>(micro_batches);
  std::vector<long long> forward(stages * m, -1); // ends
  std::vector<long long> input(stages * m, -1);
  std::vector<long long> clock(stages, 0);
  std::vector<long long> begin(stages, -1);
  std::vector<Line> lines;
  for (std::size_t stage = 0; stage < stages; ++stage) lines.emplace_back(pattern, stage, micro_batches);
  const auto run = [&](std::size_t stage) { // as far as it goes; whether it went anywhere
    bool went = false;
    for (Line& line = lines[stage]; !line.done(); line.advance(), went = true) {
      const Pass pass = line.pass();
      const std::size_t at = stage * m + static_cast<std::size_t>(line.micro_batch());
      long long ready = 0;
      if (pass == Pass::forward && stage > 0) ready = forward[at - m];
      if (pass == Pass::input) ready = stage + 1 < stages ? input[at + m] : forward[at];
      if (ready < 0) break;
      const long long start = std::max(clock[stage], ready);
      if (begin[stage] < 0) begin[stage] = start;
      clock[stage] = start + (pass == Pass::forward ? weights.forward
                              : pass == Pass::input ? weights.input
                                                    : weights.weight);
      if (pass == Pass::forward) forward[at] = clock[stage];
      if (pass == Pass::input) input[at] = clock[stage];
    }
    return went;
  };
  for (bool progress = true; progress;) { // forwards go down, gradients up
    progress = false;
    for (std::size_t stage = 0; stage < stages; ++stage) progress = run(stage) || progress;
    for (std::size_t stage = stages; stage-- > 0;) progress = run(stage) || progress;
  }
  long long longest = 0;
  for (std::size_t stage = 0; stage < stages; ++stage) longest = std::max(longest, clock[stage] - begin[stage]);
  return longest;
}

ZeroBubblePattern zero_bubble_within(const ScheduleShape& shape, int cap) {
  const int p = shape.stages;
  const SlotWeights& w = shape.weights;
  const int most = cap * p;
  if (shape.micro_batches == 1) return zero_bubble_h1(p); // F, I, W on every stage
  std::vector<ZeroBubblePattern> patterns{zero_bubble_h1(p)};
  if (cap > 1) patterns.push_back(zero_bubble_h2(p));
  patterns.push_back(filled(p, most, w, [](int after) { return after; }));
  patterns.push_back(filled(p, most, w, [](int after) { return 2 * after; }));
  patterns.push_back(
      filled(p, most, w, [&](int after) { return divided_up(after * (w.forward + w.input), w.forward); }));
  patterns.push_back(filled(p, most, w, [&](int after) { return after * (w.forward + w.input) / w.forward; }));
  const int m = std::min(shape.micro_batches, kSettledRounds * p);
  std::size_t best = 0;
  long long shortest = zero_bubble_span(patterns[0], w, m);
  for (std::size_t i = 1; i < patterns.size(); ++i)
    if (const long long span = zero_bubble_span(patterns[i], w, m); span < shortest) {
      best = i;
      shortest = span;
    }
  return patterns[best];
}

} // namespace foretrain
