#include <algorithm>

#include "core/base/check.h"
#include "executor/interpreter.h"
#include "executor/kernels/experts.h"

/// Collectives inside blocks. Several buffers count as one piece of memory, one after another.
namespace foretrain {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

std::int64_t total(const Tensors& tensors) {
  std::int64_t elements = 0;
  for (const Tensor& tensor : tensors) elements += tensor.numel();
  return elements;
}

/// Elements first … end of the tensors taken as one, cut where one of them ends: at most one piece each.
Tensors cut(const Tensors& tensors, const std::vector<std::int64_t>& bounds) {
  Tensors pieces;
  std::int64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const std::int64_t end = offset + tensor.numel();
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i)
      if (bounds[i] >= offset && bounds[i + 1] <= end)
        pieces.push_back(tensor.view(-1).narrow(0, bounds[i] - offset, bounds[i + 1] - bounds[i]));
    offset = end;
  }
  return pieces;
}

/// Where a tensor of either list begins or ends.
std::vector<std::int64_t> common_bounds(const Tensors& a, const Tensors& b) {
  std::vector<std::int64_t> bounds = {0};
  for (const Tensors* list : {&a, &b}) {
    std::int64_t offset = 0;
    for (const Tensor& tensor : *list) bounds.push_back(offset += tensor.numel());
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

/// Buffers of all members one after another in `whole`: [members, elements], columns of one buffer.
Tensor columns_of(const Tensor& whole, std::int64_t members, std::int64_t first, std::int64_t count) {
  return whole.view({members, -1}).narrow(1, first, count);
}

/// The layer of a block of several that an op is of.
std::size_t layer_of(const Op& op, const BlockState& state) {
  if (state.block->layers == 1) return 0;
  const int buffer = op.writes.empty() ? op.reads.front() : op.writes.front();
  return static_cast<std::size_t>(std::stoi(state.block->buffers[static_cast<std::size_t>(buffer)].name));
}

Routing& routing_of(const Op& op, BlockState& state) {
  return state.routing[layer_of(op, state)];
}

/// The choice of experts that is there when the host counts.
const Tensor& choice_of(const Op& op, const BlockState& state) {
  return state.buffers[static_cast<std::size_t>(op.reads.front())];
}

} // namespace

void Rank::ring_exchange(const Op& op, const Tensors& from, const Tensors& to) {
  const std::vector<int> members = program_.mesh.members(op.group, rank_);
  const auto size = static_cast<int>(members.size());
  const auto me = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
  const std::vector<std::int64_t> bounds = common_bounds(from, to);
  const Tensors out = cut(from, bounds);
  Tensors in = cut(to, bounds);
  FORETRAIN_CHECK(out.size() == in.size(), "what a ring sends has the size of what it receives");
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (std::size_t i = 0; i < in.size(); ++i)
    transfers.push_back(communicator_.start_receive(op.group, (me + size - 1) % size, in[i], static_cast<int>(i)));
  for (std::size_t i = 0; i < out.size(); ++i)
    transfers.push_back(communicator_.start_send(op.group, (me + 1) % size, out[i], static_cast<int>(i)));
  for (const auto& transfer : transfers) transfer->wait();
  moved_ = total(from) * static_cast<std::int64_t>(from.front().element_size());
}

/// Ulysses: tokens for heads, and back. Rows are sequence by sequence; a member has the tokens or the heads of its
/// place. Heads of a row are gathered for sending, or received beside it, one tensor after another.
void Rank::exchange_heads(const Op& op, const Tensors& from, const Tensors& to) {
  const std::vector<int> members = program_.mesh.members(op.group, rank_);
  const auto size = static_cast<std::int64_t>(members.size());
  const auto me = static_cast<std::int64_t>(std::find(members.begin(), members.end(), rank_) - members.begin());
  for (std::size_t t = 0; t < from.size(); ++t) {
    const bool to_heads = to[t].size(0) > from[t].size(0);
    const Tensor& narrow = to_heads ? from[t] : to[t]; ///< few tokens, all heads
    const Tensor& tall = to_heads ? to[t] : from[t];   ///< all tokens, some heads
    const std::int64_t width = tall.size(1);
    const std::int64_t sequences = plan_.layout.micro_batch;
    const std::int64_t length = narrow.size(0) / sequences;
    const auto heads_of = [&](std::int64_t member) { return narrow.narrow(1, member * width, width); };
    const auto tokens_of = [&](std::int64_t sequence, std::int64_t member) {
      return tall.narrow(0, (sequence * size + member) * length, length);
    };
    Tensors beside(static_cast<std::size_t>(size));
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (const bool sends : {false, true})
      for (std::int64_t member = 0; member < size; ++member) {
        if (member == me) continue;
        Tensor& piece = beside[static_cast<std::size_t>(member)];
        if (sends == to_heads)
          piece = sends ? heads_of(member).contiguous() : at::empty({narrow.size(0), width}, narrow.options());
        for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
          Tensor rows = sends == to_heads ? piece.narrow(0, sequence * length, length) : tokens_of(sequence, member);
          const auto peer = static_cast<int>(member);
          const auto tag = static_cast<int>(sequence);
          transfers.push_back(sends ? communicator_.start_send(op.group, peer, rows, tag)
                                    : communicator_.start_receive(op.group, peer, rows, tag));
        }
      }
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      Tensor own_tokens = tokens_of(sequence, me);
      Tensor own_heads = heads_of(me).narrow(0, sequence * length, length);
      (to_heads ? own_tokens : own_heads).copy_(to_heads ? own_heads : own_tokens);
    }
    for (const auto& transfer : transfers) transfer->wait();
    for (std::int64_t member = 0; member < size; ++member)
      if (member != me && !to_heads) heads_of(member).copy_(beside[static_cast<std::size_t>(member)]);
    moved_ += bytes_of(from[t]);
  }
}

/// Every rank learns how many rows of each of its experts come from where.
void Rank::exchange_counts(const Op& op, BlockState& state) {
  FORETRAIN_CHECK(plan_.model.moe.has_value(), "the host waits for nothing but counts of rows");
  const Mesh& mesh = program_.mesh;
  const std::int64_t ep = mesh.size(Group::ep);
  const std::int64_t etp = mesh.size(Group::etp);
  const std::int64_t experts = plan_.model.moe->experts;
  const std::int64_t own = experts / ep;
  const SlicePlace place = slice_place(plan_, mesh, rank_);
  Routing& routing = routing_of(op, state);
  kernels::SortedCopies copies = device_.kernels().sort_copies(choice_of(op, state), 0, experts);
  communicator_.check(); // before numbers of a peer that was lost become sizes
  Tensor chosen = at::empty({1, experts}, at::kLong);
  std::copy(copies.per_expert.begin(), copies.per_expert.end(), chosen.data_ptr<std::int64_t>());
  Tensor all = chosen;
  if (ep > 1) {
    all = at::empty({ep, experts}, at::kLong);
    communicator_.all_gather(Group::ep, chosen, all);
  }
  Tensor mine = all.narrow(1, place.ep_index * own, own).contiguous().view({1, ep, own});
  Tensor partners = mine;
  if (etp > 1) {
    partners = at::empty({etp, ep, own}, at::kLong);
    communicator_.all_gather(Group::etp, mine, partners);
  }
  routing = Routing{};
  routing.sorted = std::move(copies);
  const auto sum = [](const Tensor& counts) { return counts.sum().item<std::int64_t>(); };
  for (std::int64_t peer = 0; peer < ep; ++peer) {
    routing.sends.push_back(sum(chosen.narrow(1, peer * own, own)));
    routing.receives.push_back(sum(mine.select(1, peer)));
  }
  routing.per_expert.assign(static_cast<std::size_t>(own), 0);
  for (std::int64_t partner = 0; partner < etp; ++partner) {
    routing.gathered.push_back(sum(partners.select(0, partner)));
    for (std::int64_t peer = 0; peer < ep; ++peer) {
      const Tensor row = partners.select(0, partner).select(0, peer);
      const std::int64_t* counts = row.data_ptr<std::int64_t>();
      routing.arrived.emplace_back(counts, counts + own);
      for (std::size_t e = 0; e < static_cast<std::size_t>(own); ++e) routing.per_expert[e] += counts[e];
    }
  }
}

/// Rows between members: `gives[i]` rows for member i, `takes[i]` from it, in the order of members.
void Rank::exchange_rows(Group group, const Tensor& from, const std::vector<std::int64_t>& gives, Tensor& to,
                         const std::vector<std::int64_t>& takes) {
  const std::vector<int> members = program_.mesh.members(group, rank_);
  const auto me = static_cast<std::size_t>(std::find(members.begin(), members.end(), rank_) - members.begin());
  std::vector<std::unique_ptr<Transfer>> transfers;
  Tensor own;
  std::int64_t row = 0;
  for (std::size_t peer = 0; peer < takes.size(); row += takes[peer++]) {
    Tensor part = to.narrow(0, row, takes[peer]);
    if (peer == me)
      own = part;
    else if (takes[peer] > 0)
      transfers.push_back(communicator_.start_receive(group, static_cast<int>(peer), part, 0));
  }
  row = 0;
  for (std::size_t peer = 0; peer < gives.size(); row += gives[peer++]) {
    const Tensor part = from.narrow(0, row, gives[peer]);
    if (peer == me)
      own.copy_(part);
    else if (gives[peer] > 0)
      transfers.push_back(communicator_.start_send(group, static_cast<int>(peer), part, 0));
  }
  for (const auto& transfer : transfers) transfer->wait();
}

/// Rows of experts: sizes are those of the routing. Ranks that split an expert's width have the rows of all of them,
/// and their sums go back to where the rows came from.
void Rank::move_rows(const Op& op, BlockState& state, const Tensors& from, Tensors& to) {
  const Routing& routing = routing_of(op, state);
  const std::string& name = state.block->buffers[static_cast<std::size_t>(op.writes.front())].name;
  const std::string base = base_name(name);
  const bool arrives = base.find("expert.") != std::string::npos || base.find("exchanged.") != std::string::npos;
  const std::vector<int> members = program_.mesh.members(op.group, rank_);
  const auto me = static_cast<std::size_t>(std::find(members.begin(), members.end(), rank_) - members.begin());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (op.collective == Collective::all_to_all) {
      exchange_rows(op.group, from[i], arrives ? routing.sends : routing.receives, to[i],
                    arrives ? routing.receives : routing.sends);
      moved_ += bytes_of(from[i]);
      continue;
    }
    const std::vector<std::int64_t> mine(members.size(), routing.gathered[me]);
    if (op.collective == Collective::all_gather) {
      exchange_to_all(op.group, from[i], to[i], routing.gathered);
      moved_ += bytes_of(to[i]);
      continue;
    }
    std::vector<std::int64_t> shape = to[i].sizes().vec();
    shape.front() *= static_cast<std::int64_t>(members.size());
    Tensor parts = at::empty(shape, to[i].options());
    exchange_rows(op.group, from[i], routing.gathered, parts, mine);
    to[i].copy_(parts.narrow(0, 0, mine.front()));
    for (std::size_t member = 1; member < members.size(); ++member)
      to[i].add_(parts.narrow(0, static_cast<std::int64_t>(member) * mine.front(), mine.front()));
    moved_ += bytes_of(from[i]);
  }
}

/// One's rows to all members; `takes[i]` from member i.
void Rank::exchange_to_all(Group group, const Tensor& from, Tensor& to, const std::vector<std::int64_t>& takes) {
  const std::vector<int> members = program_.mesh.members(group, rank_);
  std::vector<std::unique_ptr<Transfer>> transfers;
  std::int64_t row = 0;
  for (std::size_t peer = 0; peer < takes.size(); row += takes[peer++]) {
    Tensor part = to.narrow(0, row, takes[peer]);
    if (members[peer] == rank_)
      part.copy_(from);
    else if (takes[peer] > 0)
      transfers.push_back(communicator_.start_receive(group, static_cast<int>(peer), part, 0));
  }
  for (std::size_t peer = 0; peer < takes.size(); ++peer)
    if (members[peer] != rank_ && from.size(0) > 0)
      transfers.push_back(communicator_.start_send(group, static_cast<int>(peer), from, 0));
  for (const auto& transfer : transfers) transfer->wait();
}

void Rank::run_transfer(const Op& op, BlockState& state) {
  const auto buffers = [&state](const std::vector<int>& list) {
    Tensors tensors;
    for (const int index : list) tensors.push_back(state.buffers[static_cast<std::size_t>(index)]);
    return tensors;
  };
  Tensors from = buffers(op.reads);
  Tensors to = buffers(op.writes);
  const std::int64_t members = program_.mesh.size(op.group);
  if (op.group == Group::ep || op.group == Group::etp) return move_rows(op, state, from, to);
  if (from.size() > 1 && from.size() == to.size() && op.collective != Collective::all_to_all) {
    std::int64_t moved = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
      collective(op, from[i], to[i]);
      moved += moved_;
    }
    moved_ = moved;
    return;
  }
  switch (op.collective) {
  case Collective::ring_exchange:
    return ring_exchange(op, from, to);
  case Collective::all_to_all:
    return exchange_heads(op, from, to);
  case Collective::all_gather:
    if (from.size() > 1) {
      std::int64_t offset = 0;
      for (const Tensor& share : from) {
        Tensor whole = columns_of(to.front(), members, offset, share.numel());
        communicator_.all_gather(op.group, share.view({1, -1}), whole);
        offset += share.numel();
      }
      moved_ = bytes_of(to.front());
      return;
    }
    break;
  case Collective::reduce_scatter:
    if (to.size() > 1) {
      std::int64_t offset = 0;
      for (Tensor& share : to) {
        Tensor row = share.view({1, -1});
        communicator_.reduce_scatter(op.group, columns_of(from.front(), members, offset, share.numel()), row);
        offset += share.numel();
      }
      moved_ = bytes_of(from.front());
      return;
    }
    break;
  case Collective::all_reduce:
  case Collective::broadcast:
    break;
  }
  FORETRAIN_CHECK(from.size() == 1 && to.size() == 1, "a tensor-parallel collective moves one buffer");
  collective(op, from.front(), to.front());
}

} // namespace foretrain
