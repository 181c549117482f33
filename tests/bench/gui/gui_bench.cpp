// SPDX-License-Identifier: GPL-3.0-or-later
#include <chrono>
#include <ctime>
#include <thread>

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <QApplication>
#include <QImage>
#include <QMouseEvent>
#include <QSettings>

#include "gui/app/main_window.h"
#include "gui/model/commands.h"
#include "gui/model/sensitivity.h"
#include "gui/plot/gantt.h"
#include "gui/views/view.h"
#include "tests/gui/fixtures.h"

/// What a person waits for, at 100,000 candidates. Budgets: a filter 50 ms, a hover 16 ms, a frame 33 ms, opening 1 s,
/// a block of the window 100 ms, 500 bytes a candidate, stopping 200 ms, a slider 100 ms.
namespace foretrain::gui {
namespace {

constexpr int kMany = 100'000;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// CPU seconds of this thread: on a machine that is not idle they say what wall clock does not.
double thread_cpu() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}
double process_cpu() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

void change_a_filter(benchmark::State& state) {
  Session session(test::environment());
  session.set_results(test::made_up_results(kMany));
  int i = 0;
  for (auto _ : state)
    if (!session.set_chip({Chip::Kind::expression, "", ++i % 2 == 0 ? "tp <= 4 and memory_gib < 60" : "tp <= 2"}))
      state.SkipWithError("the filter was refused");
}
BENCHMARK(change_a_filter)->Unit(benchmark::kMillisecond);

void sort_by_two_keys(benchmark::State& state) {
  const auto results = test::made_up_results(kMany);
  for (auto _ : state) benchmark::DoNotOptimize(shown_rows(*results, {}, {{"tp", true}, {"memory_gib", false}}));
}
BENCHMARK(sort_by_two_keys)->Unit(benchmark::kMillisecond);

/// A whole frame of a view with every layout in it.
void paint(benchmark::State& state, const char* id) {
  Session session(test::environment());
  session.set_waiting(true);
  session.set_results(test::made_up_results(kMany));
  session.select({0});
  CommandRegistry commands;
  const auto view = find_view(id)->make({session, commands});
  view->resize(1200, 700);
  view->show();
  QApplication::processEvents();
  for (auto _ : state) benchmark::DoNotOptimize(view->grab());
}
/// The same when everything has changed: data read anew, drawn anew.
void paint_anew(benchmark::State& state, const char* id) {
  Session session(test::environment());
  session.set_waiting(true);
  session.set_results(test::made_up_results(kMany));
  session.select({0});
  CommandRegistry commands;
  const auto view = find_view(id)->make({session, commands});
  view->resize(1200, 700);
  view->show();
  QApplication::processEvents();
  for (auto _ : state) {
    view->flush();
    benchmark::DoNotOptimize(view->grab());
  }
}
BENCHMARK_CAPTURE(paint_anew, table, "table")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint_anew, pareto, "pareto")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint_anew, parallel, "parallel")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint_anew, timeline, "timeline")->Unit(benchmark::kMillisecond);

BENCHMARK_CAPTURE(paint, table, "table")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint, pareto, "pareto")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint, parallel, "parallel")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint, memory, "memory")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint, timeline, "timeline")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint, topology, "topology")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint, waterfall, "waterfall")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint, rejections, "rejections")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint, compare, "compare")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(paint, measured, "measured")->Unit(benchmark::kMillisecond);

void hover(benchmark::State& state, const char* id) {
  Session session(test::environment());
  session.set_results(test::made_up_results(kMany));
  CommandRegistry commands;
  const auto view = find_view(id)->make({session, commands});
  view->resize(1200, 700);
  view->show();
  QApplication::processEvents();
  int row = 0;
  for (auto _ : state) session.set_hover(row = (row + 7919) % kMany);
}
BENCHMARK_CAPTURE(hover, table, "table")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hover, pareto, "pareto")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(hover, parallel, "parallel")->Unit(benchmark::kMillisecond);

/// The pointer over a plot: what is under it is found and lit up.
void move_the_pointer(benchmark::State& state, const char* id) {
  Session session(test::environment());
  session.set_waiting(true);
  session.set_results(test::made_up_results(kMany));
  session.select({0});
  CommandRegistry commands;
  const auto view = find_view(id)->make({session, commands});
  view->resize(1200, 700);
  view->show();
  QApplication::processEvents();
  QWidget* plot = view.get();
  while (plot->focusProxy()) plot = plot->focusProxy();
  int step = 0;
  for (auto _ : state) {
    const QPointF at(100 + step * 37 % 1000, 100 + step * 53 % 500);
    ++step;
    QMouseEvent event(QEvent::MouseMove, at, plot->mapToGlobal(at), Qt::NoButton, Qt::NoButton, Qt::NoModifier);
    QApplication::sendEvent(plot, &event);
  }
}
BENCHMARK_CAPTURE(move_the_pointer, pareto, "pareto")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(move_the_pointer, parallel, "parallel")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(move_the_pointer, timeline, "timeline")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(move_the_pointer, topology, "topology")->Unit(benchmark::kMillisecond);

/// The window, made and shown: most of a start.
void open_the_window(benchmark::State& state) {
  const test::Folder folder;
  for (auto _ : state) {
    MainWindow window(
        test::environment(),
        std::make_unique<QSettings>(QString::fromStdString((folder / "s.ini").string()), QSettings::IniFormat));
    window.show();
    QApplication::processEvents();
  }
}
BENCHMARK(open_the_window)->Unit(benchmark::kMillisecond);

/// The longest that an event of the window takes while a search fills it.
void search_in_the_window(benchmark::State& state) {
  const test::Folder folder;
  double longest = 0;
  for (auto _ : state) {
    MainWindow window(
        test::environment(),
        std::make_unique<QSettings>(QString::fromStdString((folder / "s.ini").string()), QSettings::IniFormat));
    window.show();
    window.session().open_study(test::small_document(), "open");
    QApplication::processEvents();
    window.commands().run("search.start");
    while (window.session().searching()) {
      const double before = thread_cpu();
      QApplication::processEvents(QEventLoop::AllEvents, 1);
      longest = std::max(longest, thread_cpu() - before);
    }
  }
  state.counters["longest_block_cpu_s"] = longest;
}
BENCHMARK(search_in_the_window)->Unit(benchmark::kMillisecond)->Iterations(3);

void visible_boxes_of_64_lanes(benchmark::State& state) {
  std::vector<Span> lane;
  for (int i = 0; i < 10'000; ++i) lane.push_back({i * 1e-3, i * 1e-3 + 9e-4, i % 2, i, i});
  for (auto _ : state)
    for (int row = 0; row < 64; ++row) benchmark::DoNotOptimize(visible_boxes(lane, 0, 10, 10.0 / 1600));
}
BENCHMARK(visible_boxes_of_64_lanes)->Unit(benchmark::kMillisecond);

void open_a_session(benchmark::State& state) {
  const test::Folder folder;
  const auto path = folder / "many.foretrain";
  {
    Session session(test::environment());
    session.set_results(test::made_up_results(kMany));
    if (!session.save_as(path)) state.SkipWithError("the session was not written");
    while (session.saving()) session.poll();
  }
  double first = 0;
  double block = 0;
  double cpu = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const double began = process_cpu();
    Session session(test::environment());
    const auto poll = [&] {
      const double before = thread_cpu();
      session.poll();
      block = std::max(block, thread_cpu() - before);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    if (!session.open_file(path)) state.SkipWithError("the session was not opened");
    while (session.rows().empty()) poll();
    first = seconds_since(start);
    while (session.loading()) poll();
    cpu = process_cpu() - began;
    if (session.rows().size() != kMany) state.SkipWithError("rows are missing");
  }
  state.counters["first_rows_s"] = first;
  state.counters["longest_block_cpu_s"] = block;
  state.counters["cpu_s"] = cpu;
}
BENCHMARK(open_a_session)->Unit(benchmark::kMillisecond)->Iterations(3);

/// Heap of a session with all candidates, order and marks included, over their number.
void memory_of_a_candidate(benchmark::State& state) {
  double bytes = 0;
  for (auto _ : state) {
    Session session(test::environment());
    const auto before = ::mallinfo2();
    session.set_results(test::made_up_results(kMany));
    const auto after = ::mallinfo2();
    bytes = double(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) / kMany;
  }
  state.counters["bytes"] = bytes;
}
BENCHMARK(memory_of_a_candidate)->Unit(benchmark::kMillisecond)->Iterations(1);

/// A step of a slider: the twelve best layouts timed anew.
void move_a_slider(benchmark::State& state) {
  Session session(test::environment());
  session.open_study(test::small_document(), "open");
  session.start_search();
  while (session.searching()) session.poll();
  const auto results = std::make_shared<const Results>(session.results());
  std::vector<Factor> factors = factors_of(results->study);
  std::vector<Layout> layouts;
  for (std::size_t i = 0; i < 12 && i < results->rows.size(); ++i) layouts.push_back(results->rows[i].layout);
  for (auto _ : state) {
    factors.front().value = factors.front().value > 2 ? 1 : factors.front().value * 1.05;
    if (!rescaled(test::environment(), results->study, factors, layouts)) state.SkipWithError("no answer");
  }
}
BENCHMARK(move_a_slider)->Unit(benchmark::kMillisecond);

void stop_a_search(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    Session session(test::environment());
    session.open_study(test::small_document(), "open");
    session.start_search();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    state.ResumeTiming();
    session.stop_search();
    while (session.searching()) session.poll();
  }
}
BENCHMARK(stop_a_search)->Unit(benchmark::kMillisecond)->Iterations(5);

} // namespace
} // namespace foretrain::gui

int main(int argc, char** argv) {
  qputenv("QT_QPA_PLATFORM", "offscreen");
  QApplication::setStyle(QStringLiteral("fusion"));
  QApplication app(argc, argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
