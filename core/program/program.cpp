#include "core/program/program.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"

namespace foretrain {
namespace {

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// The op lists of a block one after another, as liveness sees them.
std::vector<Op*> in_order(Block& block, bool split) {
  std::vector<Op*> ops;
  for (Op& op : block.forward) ops.push_back(&op);
  if (split) {
    for (Op& op : block.input) ops.push_back(&op);
    for (Op& op : block.weight) ops.push_back(&op);
  } else {
    for (Op& op : block.backward) ops.push_back(&op);
  }
  return ops;
}

/// For each op, the index until which what it reads must stay: a transfer's inputs are in use until an op on the
/// compute stream waits for what the transfer wrote.
std::vector<std::size_t> use_ends(const std::vector<Op*>& ops) {
  std::vector<std::size_t> ends(ops.size());
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ends[i] = i;
    if (ops[i]->stream == Stream::compute) continue;
    for (std::size_t j = i + 1; j < ops.size(); ++j) {
      if (ops[j]->stream != Stream::compute) continue;
      const bool waits = std::any_of(ops[i]->writes.begin(), ops[i]->writes.end(),
                                     [&](int buffer) { return contains(ops[j]->reads, buffer); });
      if (waits) {
        ends[i] = j;
        break;
      }
    }
  }
  return ends;
}

/// The ops that read or write each buffer, in order: one list per buffer, chained in one array.
class Touches {
public:
  struct Touch {
    std::size_t op = 0;
    bool reads = false;
    bool writes = false;
    int next = kNone;
  };
  static constexpr int kNone = -1;

  Touches(const std::vector<Op*>& ops, std::size_t buffers) : first_(buffers, kNone), last_(buffers, kNone) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (const int buffer : ops[i]->reads) at(buffer, i).reads = true;
      for (const int buffer : ops[i]->writes) at(buffer, i).writes = true;
    }
  }
  template <class Visit> void each(std::size_t buffer, Visit&& visit) const {
    for (int t = first_[buffer]; t != kNone; t = list_[static_cast<std::size_t>(t)].next)
      visit(list_[static_cast<std::size_t>(t)]);
  }

private:
  Touch& at(int buffer, std::size_t op) {
    const auto b = static_cast<std::size_t>(buffer);
    if (last_[b] == kNone || list_[static_cast<std::size_t>(last_[b])].op != op) {
      const int added = static_cast<int>(list_.size());
      list_.push_back({op, false, false, kNone});
      if (last_[b] == kNone)
        first_[b] = added;
      else
        list_[static_cast<std::size_t>(last_[b])].next = added;
      last_[b] = added;
    }
    return list_[static_cast<std::size_t>(last_[b])];
  }

  std::vector<Touch> list_;
  std::vector<int> first_, last_; ///< per buffer
};

void derive_frees(Block& block, const std::vector<Op*>& ops) {
  const std::vector<std::size_t> ends = use_ends(ops);
  const Touches touches(ops, block.buffers.size());
  for (std::size_t b = 0; b < block.buffers.size(); ++b) {
    const int buffer = static_cast<int>(b);
    const BufferScope scope = block.buffers[b].scope;
    const bool freed_elsewhere = scope == BufferScope::output || scope == BufferScope::grad_input;
    // The input and the output's gradient are live from the start; what the block writes first is not.
    bool live = scope == BufferScope::input || scope == BufferScope::grad_output;
    std::size_t last = 0;
    bool touched = false;
    const auto close = [&] {
      if (touched && !freed_elsewhere) ops[last]->frees.push_back(buffer);
    };
    touches.each(b, [&](const Touches::Touch& touch) {
      if (touch.writes && !touch.reads && (!live || touched)) { // a fresh value: the one before is dead
        if (live) close();
        ops[touch.op]->allocates.push_back(buffer);
        live = true;
        last = touch.op;
      }
      FORETRAIN_CHECK(live, "an op reads a buffer that nobody wrote");
      touched = true;
      last = std::max(last, touch.reads ? ends[touch.op] : touch.op);
    });
    close();
  }
}

void derive_waits(const std::vector<Op*>& ops, std::size_t buffers) {
  constexpr int kOutside = -1;
  std::vector<int> writer(buffers, kOutside);
  for (Op* op : ops) {
    for (const int buffer : op->reads) {
      const int stream = writer[static_cast<std::size_t>(buffer)];
      if (stream != kOutside && stream != static_cast<int>(op->stream)) op->waits.push_back(buffer);
    }
    for (const int buffer : op->writes) writer[static_cast<std::size_t>(buffer)] = static_cast<int>(op->stream);
  }
}

Block::Memory fold(const Block& block, const std::vector<Op>& ops) {
  Block::Memory memory;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    for (const int buffer : ops[i].allocates) memory.net += block.buffers[static_cast<std::size_t>(buffer)].bytes;
    if (memory.net + ops[i].scratch > memory.peak) {
      memory.peak = memory.net + ops[i].scratch;
      memory.peak_op = static_cast<int>(i);
    }
    for (const int buffer : ops[i].frees) memory.net -= block.buffers[static_cast<std::size_t>(buffer)].bytes;
  }
  return memory;
}

} // namespace

const std::vector<Op>& Block::ops(Pass pass) const {
  switch (pass) {
  case Pass::forward:
    return forward;
  case Pass::backward:
    return backward;
  case Pass::input:
    return input;
  case Pass::weight:
    return weight;
  case Pass::recompute:
  case Pass::step:
    break;
  }
  FORETRAIN_CHECK(false, "a block has ops for forward, backward, input and weight");
}

const Block::Memory& Block::memory(Pass pass) const {
  switch (pass) {
  case Pass::forward:
    return forward_memory;
  case Pass::backward:
    return backward_memory;
  case Pass::input:
    return input_memory;
  case Pass::weight:
    return weight_memory;
  case Pass::recompute:
  case Pass::step:
    break;
  }
  FORETRAIN_CHECK(false, "a block has memory for forward, backward, input and weight");
}

Block::Memory then(const Block::Memory& a, const Block::Memory& b) {
  Block::Memory both;
  both.net = a.net + b.net;
  both.peak = std::max(a.peak, a.net + b.peak);
  return both;
}

void finish_block(Block& block, bool split) {
  if (split)
    block.backward.clear();
  else {
    block.input.clear();
    block.weight.clear();
  }
  const std::vector<Op*> ops = in_order(block, split);
  derive_frees(block, ops);
  derive_waits(ops, block.buffers.size());
  block.forward_memory = fold(block, block.forward);
  block.backward_memory = fold(block, block.backward);
  block.input_memory = fold(block, block.input);
  block.weight_memory = fold(block, block.weight);
}

} // namespace foretrain
