// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/run_export.h"

#include <chrono>
#include <thread>

#include "gui/app/export.h"
#include "gui/app/open_file.h"
#include "gui/model/commands.h"
#include "gui/views/view.h"

namespace foretrain::gui {
namespace {

void wait_for(Session& session, const std::function<bool()>& busy) {
  while (busy()) {
    session.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  session.poll();
}

/// `file`: where the study comes from.
Result<void> first_problem(const Session& session, const std::string& file) {
  constexpr std::string_view kStudy = "study:";
  if (session.problems().empty()) return {};
  const Problem& problem = session.problems().front();
  const std::string where =
      problem.where.starts_with(kStudy) ? file + problem.where.substr(kStudy.size() - 1) : problem.where;
  return fail(where, problem.message, problem.hint);
}

} // namespace

Result<void> run_export(const Options& options, Environment environment) {
  if (options.files.empty()) return fail("--export", "what to show is not named", "give a session or a study");
  Session session(std::move(environment));
  session.set_waiting(true);
  for (const std::string& file : options.files) {
    if (auto opened = open_any(session, file); !opened) return opened;
  }
  wait_for(session, [&] { return session.loading(); });
  if (options.search) {
    session.set_path({}); // a picture leaves the session as it is
    session.start_search();
    wait_for(session, [&] { return session.searching(); });
  }
  if (auto fine = first_problem(session, options.files.back()); !fine) return fine;
  if (!options.filter.empty()) {
    if (auto set = session.set_chip({Chip::Kind::expression, "", options.filter}); !set) return set;
  }
  const int wanted = options.select.empty() ? -1 : std::stoi(options.select) - 1;
  if (wanted >= static_cast<int>(session.rows().size()))
    return fail("--select", "there is no layout of rank " + options.select,
                std::to_string(session.rows().size()) + " are kept");
  if (wanted >= 0)
    session.select({wanted});
  else if (session.current() < 0 && !session.shown().empty())
    session.select({session.shown().front()});
  CommandRegistry commands;
  apply_palette(options.theme == "dark" ? dark_theme() : light_theme());
  const ViewEntry* entry = find_view(options.view.empty() ? "table" : options.view);
  const std::unique_ptr<View> view = entry->make({session, commands});
  view->setWindowTitle(QString::fromUtf8(entry->title));
  view->set_theme(options.theme == "dark" ? dark_theme() : light_theme());
  view->setPalette(palette_of(view->theme()));
  return export_view(*view, options.export_to, QSize(options.width, options.height), options.scale);
}

} // namespace foretrain::gui
