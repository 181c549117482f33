// store_writer FILE DATA BATCHES SIZE: one study with that many batches; prints a line after each that is committed.
#include <cstdio>
#include <cstdlib>

#include "tests/db/samples.h"
#include "tests/support/places.h"

int main(int argc, char** argv) {
  using namespace foretrain;
  if (argc != 5) return 64;
  auto store = Store::open(argv[1], OpenMode::write, DataFolder{argv[2]}, Seconds(60));
  if (!store) {
    std::fprintf(stderr, "%s\n", to_string(store.error()).c_str());
    return 1;
  }
  const int batches = std::atoi(argv[3]);
  const int size = std::atoi(argv[4]);
  const auto study = store->begin_study(test::sample_study(), "test");
  if (!study) {
    std::fprintf(stderr, "%s\n", to_string(study.error()).c_str());
    return 1;
  }
  for (int i = 0; i < batches; ++i) {
    const auto ids = store->add_candidates(*study, test::sample_batch(i * size, size));
    if (!ids) {
      std::fprintf(stderr, "%s\n", to_string(ids.error()).c_str());
      return 1;
    }
    std::printf("%d\n", i + 1);
    std::fflush(stdout);
  }
  const auto finished = store->finish_study(*study, StudyCounts{}, Seconds(1), true);
  return finished ? 0 : 1;
}
