#pragma once

#include <string>
#include <utility>

#include <tl/expected.hpp>

namespace foretrain {

/// What went wrong with the user's input or the world. A layout that cannot run is a `Rejection`, not an error.
struct Error {
  enum class Kind {
    input,       ///< the user can fix it: exit code 1
    environment, ///< file system, database, a worker program: exit code 1
    cancelled,   ///< interrupted; partial results stand: exit code 130
  };
  Kind kind = Kind::input;
  std::string message; ///< names the wrong value; never empty
  std::string where;   ///< file and JSON pointer ("plan.json:/layout/tp"), or a flag ("--gpus"); may be empty
  std::string hint;    ///< what would be right; may be empty

  bool operator==(const Error&) const = default;
};

/// "where: message (hint)" on one line, for people.
[[nodiscard]] std::string to_string(const Error& error);

template <class T> using Result = tl::expected<T, Error>;

[[nodiscard]] inline tl::unexpected<Error> fail(std::string where, std::string message, std::string hint = {}) {
  return tl::unexpected<Error>(Error{Error::Kind::input, std::move(message), std::move(where), std::move(hint)});
}
[[nodiscard]] inline tl::unexpected<Error> fail_environment(std::string where, std::string message,
                                                            std::string hint = {}) {
  return tl::unexpected<Error>(Error{Error::Kind::environment, std::move(message), std::move(where), std::move(hint)});
}

} // namespace foretrain

/// Returns the error of `expression` from the enclosing function, else declares `variable` with its value.
#define FORETRAIN_CONCAT_INNER(a, b) a##b
#define FORETRAIN_CONCAT(a, b) FORETRAIN_CONCAT_INNER(a, b)
#define FORETRAIN_TRY(variable, expression)                                                                            \
  auto FORETRAIN_CONCAT(try_, __LINE__) = (expression);                                                                \
  if (!FORETRAIN_CONCAT(try_, __LINE__))                                                                               \
    return tl::unexpected<::foretrain::Error>(std::move(FORETRAIN_CONCAT(try_, __LINE__)).error());                    \
  variable = std::move(*FORETRAIN_CONCAT(try_, __LINE__))
