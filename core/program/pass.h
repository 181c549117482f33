#pragma once

namespace foretrain {

/// What a slot computes.
enum class Pass {
  forward,
  backward,  ///< whole: input and weight gradients
  input,     ///< I: gradients of inputs alone
  weight,    ///< W: gradients of weights alone
  recompute, ///< R: a forward done again inside a backward
  step,      ///< once per step
};

} // namespace foretrain
