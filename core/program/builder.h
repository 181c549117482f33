#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "core/program/context.h"
#include "core/program/program.h"

namespace foretrain {

/// Builds a block: buffers by name once, then ops in issue order. Ops are appended to the forward list or to the whole
/// backward list; the split lists I and W are filtered from the latter by pass.
class BlockBuilder {
public:
  BlockBuilder(const LayerContext& context, BlockKind kind, std::string name);

  [[nodiscard]] const LayerContext& context() const { return context_; }

  /// Declares a buffer of `shape` elements. The same name gives the same buffer (a recomputed one is written again).
  int buffer(const std::string& name, DType dtype, std::vector<std::int64_t> shape, MemoryPart part,
             BufferScope scope = BufferScope::block);
  /// A saved activation in the activation dtype.
  int activation(const std::string& name, std::vector<std::int64_t> shape);
  /// A transient in the activation dtype.
  int temporary(const std::string& name, std::vector<std::int64_t> shape);

  /// A transient that the backward reads after all.
  void saves(int buffer) { block_.buffers[static_cast<std::size_t>(buffer)].part = MemoryPart::activations; }

  /// A tensor in the recipe's 8- or 4-bit type with its scales; `copies` of it where products read it both ways.
  int quantised(const std::string& name, std::vector<std::int64_t> shape, MemoryPart part, int copies = 1);
  [[nodiscard]] const Buffer& at(int buffer) const { return block_.buffers[static_cast<std::size_t>(buffer)]; }

  /// A weight of the model: frozen where the job trains adapters.
  int parameter(Parameter parameter);
  /// A weight that is trained in any case.
  int adapter(Parameter parameter);
  [[nodiscard]] bool trains(int parameter) const {
    return parameter >= 0 && !block_.parameters[static_cast<std::size_t>(parameter)].frozen;
  }

  /// Put before the names of buffers and parameters from now on: several layers in one block.
  void prefix(std::string text) { prefix_ = std::move(text); }

  /// Where ops go from now on.
  void begin(Pass pass) { pass_ = pass; }
  [[nodiscard]] Pass pass() const { return pass_; }

  /// A compute op of the current pass.
  Op& compute(Segment segment, std::vector<int> reads, std::vector<int> writes, std::vector<Kernel> kernels);
  /// A collective of the current pass on its group's stream.
  Op& collective(Collective kind, Group group, Bytes bytes, std::vector<int> reads, std::vector<int> writes);
  /// Ops issued so far, and an empty buffer that the last of them writes: who reads it waits for that op.
  [[nodiscard]] std::size_t issued() { return list().size(); }
  int mark(const std::string& name);
  /// Host synchronisation: compute waits for the host.
  Op& host_sync();

  void layers(int count) { block_.layers = count; }

  /// Finished block: split lists, waits, frees and memory folds.
  [[nodiscard]] Block finish();

private:
  std::vector<Op>& list();
  const LayerContext& context_;
  Block block_;
  Pass pass_ = Pass::forward;
  std::string prefix_;
};

/// C[m,n] = A[m,k] B[k,n]; `low`: operands in the recipe's 8- or 4-bit type. `weight_gradient` accumulates into fp32: 8
/// more bytes per weight element.
[[nodiscard]] Kernel gemm(const LayerContext& context, std::int64_t m, std::int64_t n, std::int64_t k,
                          GemmRole role = GemmRole::forward, bool low = false);
/// `groups` GEMMs of `m` rows each.
[[nodiscard]] Kernel grouped_gemm(const LayerContext& context, std::int64_t groups, double rows, std::int64_t n,
                                  std::int64_t k, GemmRole role = GemmRole::forward, bool low = false);
/// A kernel bound by memory traffic.
[[nodiscard]] Kernel traffic(const LayerContext& context, double bytes);

} // namespace foretrain
