#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include <unistd.h>

#include "planner/cli/app.h"
#include "planner/cli/context.h"

namespace {

/// A failed check has printed what failed. Scripts can tell this from a wrong input.
extern "C" void on_abort(int) {
  _exit(foretrain::cli::kInternal);
}

} // namespace

int main(int argc, char** argv) {
  std::signal(SIGABRT, on_abort);
  std::signal(SIGPIPE, SIG_IGN); // a closed pipe is an error of the write
  try {
    return foretrain::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("foretrain: not enough memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "foretrain: internal error: %s\n", error.what());
  }
  return foretrain::cli::kInternal;
}
