// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/model/session.h"

#include <algorithm>

#include "core/spec/io.h"
#include "gui/model/numbers.h"

namespace foretrain::gui {

Session::Session(Environment environment)
    : environment_(std::move(environment)), details_(environment_, inbox_), search_(environment_, inbox_),
      file_(environment_, inbox_) {
  details_.arrived = [this] { changed(kDetailChanged); };
}

Session::~Session() {
  close();
}

void Session::close() {
  search_.abandon();
  details_.forget();
  settle_state();
  file_.wait();
}

int Session::observe(Observer observer) {
  observers_.emplace_back(next_observer_, std::move(observer));
  return next_observer_++;
}

void Session::forget(int observer) {
  std::erase_if(observers_, [observer](const auto& entry) { return entry.first == observer; });
}

void Session::changed(Changes changes) {
  const auto observers = observers_; // one of them may forget another
  for (const auto& [id, observer] : observers) observer(changes);
}

void Session::poll() {
  inbox_.deliver();
}

void Session::edit(const std::string& title, const std::function<void(Edits&)>& change) {
  Edits after = edits_;
  change(after);
  if (after == edits_) return;
  const Edits before = edits_;
  apply(after);
  if (edited) edited(title, before, after);
}

void Session::apply(const Edits& edits) {
  const Edits before = edits_;
  edits_ = edits;
  Changes changes = 0;
  if (edits_.document != before.document) {
    read_study();
    changes |= kStudyChanged;
  }
  if (edits_.chips != before.chips || edits_.sort != before.sort) {
    filter_rows();
    changes |= kShownChanged;
  }
  if (edits_.pins != before.pins || edits_.baseline != before.baseline) {
    find_pins();
    changes |= kPinsChanged;
  }
  if (edits_.columns != before.columns) changes |= kColumnsChanged;
  if (changes != 0) changed(changes);
}

void Session::report(Problem problem) {
  std::erase(problems_, problem);
  problems_.push_back(std::move(problem));
  changed(kStudyChanged);
}

void Session::read_study() {
  problems_.clear();
  study_.reset();
  if (edits_.document.is_null()) return;
  const auto complain = [this](const Error& error) { problems_.push_back({error.where, error.message, error.hint}); };
  auto study = study_from(edits_.document, "study", environment_.data);
  if (!study) return complain(study.error());
  const auto filter = Filter::parse(study->where, "study:/where");
  if (!filter) return complain(filter.error());
  study_ = std::move(*study);
}

void Session::open_study(const Json& document, const std::string& title) {
  search_.abandon();
  edit(title, [&](Edits& edits) {
    edits.document = document;
    edits.chips.clear();
    edits.baseline.reset();
    edits.pins.clear();
    edits.sort.clear();
  });
  if (stale()) take_results(std::make_shared<Results>());
}

bool Session::stale() const {
  return !results_->rows.empty() && study_ && (recalibrated_ || !(*study_ == results_->study));
}

void Session::start_search(Extent extent) {
  if (!study_ || searching()) return;
  progress_ = {};
  file_.stop_reading(); // what it would bring is of the search before
  rest_on_calibration();
  started_ = std::chrono::steady_clock::now();
  SearchJob::Reports reports;
  reports.progress = [this](const Progress& progress) {
    if (progress.phase != progress_.phase) started_ = std::chrono::steady_clock::now(); // each counts its own layouts
    progress_ = progress;
    changed(kProgressChanged);
  };
  reports.found = [this](std::shared_ptr<const Results> results) { take_results(std::move(results)); };
  reports.done = [this](Result<std::shared_ptr<const Results>> results) {
    if (!results) {
      report(results.error());
    } else {
      take_results(*results);
      if (selection_.empty() && !shown_.empty()) select({shown_.front()});
      if (!path_.empty()) write_results(*results);
    }
    changed(kProgressChanged);
  };
  search_.start(*study_, extent, std::move(reports));
  changed(kProgressChanged);
}

void Session::write_results(std::shared_ptr<const Results> results) {
  file_.write(path_, std::move(results), [this](Result<void> written) {
    if (!written) report(written.error());
    changed(kFileChanged);
  });
}

void Session::stop_search() {
  search_.stop();
}

std::optional<double> Session::remaining_s() const {
  if (!searching() || progress_.done <= 0 || progress_.total <= 0) return std::nullopt;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  return elapsed * double(progress_.total - progress_.done) / double(progress_.done);
}

void Session::set_results(std::shared_ptr<const Results> results) {
  take_results(std::move(results));
}

void Session::take_results(std::shared_ptr<const Results> results) {
  const bool other_study = !(results->study == results_->study);
  results_ = std::move(results);
  if (other_study) details_.forget();
  selection_.clear();
  hover_ = -1;
  for (const Layout& layout : chosen_)
    if (const int row = row_of(layout); row >= 0) selection_.push_back(row);
  find_pins();
  filter_rows();
  changed(kRowsChanged | kShownChanged | kSelectionChanged | kHoverChanged | kPinsChanged);
}

int Session::row_of(const Layout& layout) const {
  const auto found = std::find_if(rows().begin(), rows().end(), [&](const Row& row) { return row.layout == layout; });
  return found == rows().end() ? -1 : static_cast<int>(found - rows().begin());
}

void Session::filter_rows() {
  filters_.clear();
  for (const Chip& chip : edits_.chips)
    if (auto filter = chip_filter(chip)) filters_.push_back(std::move(*filter));
  shown_ = shown_rows(*results_, filters_, edits_.sort);
}

int Session::hidden_by(const Chip& chip) const {
  const auto filter = chip_filter(chip);
  if (!filter) return 0;
  return static_cast<int>(std::count_if(
      rows().begin(), rows().end(), [&](const Row& row) { return !filter->admits(field_row(results_->study, row)); }));
}

std::string Session::chip_text(Chip::Kind kind, const std::string& field) const {
  for (const Chip& chip : edits_.chips)
    if (chip.kind == kind && chip.field == field) return chip.text;
  return {};
}

Result<void> Session::set_chip(const Chip& chip) {
  if (!chip.text.empty()) {
    if (const auto filter = chip_filter(chip); !filter) return tl::unexpected<Error>(filter.error());
  }
  const std::string title = chip.text.empty() ? "clear filter" : "filter " + chip_title(chip);
  edit(title, [&](Edits& edits) {
    const auto same = [&](const Chip& other) { return other.kind == chip.kind && other.field == chip.field; };
    const auto at = std::find_if(edits.chips.begin(), edits.chips.end(), same);
    if (chip.text.empty())
      std::erase_if(edits.chips, same);
    else if (at != edits.chips.end())
      *at = chip;
    else
      edits.chips.push_back(chip);
  });
  return {};
}

void Session::remove_chip(std::size_t index) {
  if (index >= edits_.chips.size()) return;
  edit("remove filter " + chip_title(edits_.chips[index]),
       [&](Edits& edits) { edits.chips.erase(edits.chips.begin() + static_cast<std::ptrdiff_t>(index)); });
}

void Session::select(std::vector<int> wanted) {
  std::erase_if(wanted, [this](int row) { return row < 0 || row >= static_cast<int>(rows().size()); });
  if (wanted == selection_) return;
  selection_ = std::move(wanted);
  chosen_.clear();
  for (const int row : selection_) chosen_.push_back(rows()[static_cast<std::size_t>(row)].layout);
  changed(kSelectionChanged);
}

void Session::step_selection(int by) {
  if (shown_.empty()) return;
  const auto at = std::find(shown_.begin(), shown_.end(), current());
  const auto last = static_cast<std::ptrdiff_t>(shown_.size()) - 1;
  const std::ptrdiff_t next = at == shown_.end() ? 0 : std::clamp<std::ptrdiff_t>(at - shown_.begin() + by, 0, last);
  select({shown_[static_cast<std::size_t>(next)]});
}

void Session::set_hover(int row) {
  if (row >= static_cast<int>(rows().size())) row = -1;
  if (row == hover_) return;
  hover_ = row;
  changed(kHoverChanged);
}

void Session::find_pins() {
  pins_.clear();
  for (const Pin& pin : edits_.pins)
    if (const int row = row_of(pin.layout); row >= 0) pins_.push_back(row);
  baseline_ = edits_.baseline ? row_of(*edits_.baseline) : -1;
}

bool Session::pinned(int row) const {
  return std::find(pins_.begin(), pins_.end(), row) != pins_.end();
}

std::vector<int> Session::pinned_rows() const {
  return pins_;
}

void Session::toggle_pin(int row) {
  if (row < 0 || row >= static_cast<int>(rows().size())) return;
  const Layout& layout = rows()[static_cast<std::size_t>(row)].layout;
  const std::string name = "#" + std::to_string(row + 1);
  edit((pinned(row) ? "unpin " : "pin ") + name, [&](Edits& edits) {
    if (std::erase_if(edits.pins, [&](const Pin& pin) { return pin.layout == layout; }) == 0)
      edits.pins.push_back({layout, ""});
  });
}

void Session::set_baseline(int row) {
  if (row < 0 || row >= static_cast<int>(rows().size())) return;
  const bool same = row == baseline_;
  edit(same ? "clear baseline" : "baseline #" + std::to_string(row + 1), [&](Edits& edits) {
    edits.baseline = same ? std::nullopt : std::optional<Layout>(rows()[static_cast<std::size_t>(row)].layout);
  });
}

std::string Session::note(int row) const {
  for (const Pin& pin : edits_.pins)
    if (row >= 0 && row < static_cast<int>(rows().size()) && pin.layout == rows()[static_cast<std::size_t>(row)].layout)
      return pin.note;
  return {};
}

void Session::set_note(int row, const std::string& text) {
  if (row < 0 || row >= static_cast<int>(rows().size())) return;
  const Layout& layout = rows()[static_cast<std::size_t>(row)].layout;
  edit("note on #" + std::to_string(row + 1), [&](Edits& edits) {
    const auto at =
        std::find_if(edits.pins.begin(), edits.pins.end(), [&](const Pin& p) { return p.layout == layout; });
    if (at == edits.pins.end())
      edits.pins.push_back({layout, text});
    else
      at->note = text;
  });
}

int Session::reference_for(int row) const {
  if (baseline_ >= 0 && baseline_ != row) return baseline_;
  const int best = row == 0 ? 1 : 0;
  return best < static_cast<int>(rows().size()) ? best : -1;
}

std::shared_ptr<const Detail> Session::detail(int row) {
  if (row < 0 || row >= static_cast<int>(rows().size())) return nullptr;
  const Layout& layout = rows()[static_cast<std::size_t>(row)].layout;
  return waiting_ ? details_.now(results_->study, layout) : details_.of(results_->study, layout);
}

void Session::simulate(int row) {
  if (row < 0 || row >= static_cast<int>(rows().size())) return;
  (void)details_.of(results_->study, rows()[static_cast<std::size_t>(row)].layout); // the replay beside it
  details_.simulate(results_->study, rows()[static_cast<std::size_t>(row)].layout);
  changed(kDetailChanged);
}

int Session::simulating() const {
  return details_.simulating() ? row_of(*details_.simulating()) : -1;
}

} // namespace foretrain::gui
