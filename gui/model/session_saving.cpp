// SPDX-License-Identifier: GPL-3.0-or-later
#include <utility>

#include "core/spec/io.h"
#include "gui/model/runs.h"
#include "gui/model/session.h"

/// The session and what lies on the disk: its file, runs taken out of it, calibrations of its device.
namespace foretrain::gui {
namespace {

Result<std::string> calibration_text(const Environment& environment, const DeviceSpec& device) {
  FORETRAIN_TRY(const Calibration calibration, calibration_of(environment, device));
  return to_json(calibration).dump();
}

} // namespace

Result<void> Session::open_file(const std::filesystem::path& path) {
  FORETRAIN_TRY(SavedSession saved, file_.open(path));
  search_.abandon();
  settle_state();
  file_.wait();
  Edits edits = edits_from(saved.view_state);
  if (edits.document.is_null()) edits.document = saved.study;
  view_state_ = std::move(saved.view_state);
  written_ = std::move(saved.written);
  conflicted_ = false;
  path_ = path;
  chosen_.clear();
  if (auto layout = layout_from(saved.selected, "session"); saved.selected.is_object() && layout)
    chosen_.push_back(std::move(*layout));
  take_results(std::make_shared<Results>());
  apply(edits);
  rest_on_calibration();
  if (saved.study_id > 0)
    file_.read_rows(path, saved.study_id, [this](Result<std::shared_ptr<const Results>> results) {
      if (!results) return report(results.error());
      take_results(*results);
      if (loading()) return; // a page
      if (wanted_ >= 0) select({std::exchange(wanted_, -1)});
      if (selection_.empty() && !shown_.empty()) select({shown_.front()});
    });
  changed(kFileChanged | kStudyChanged);
  return {};
}

Result<void> Session::save_view_state() {
  settle_state();
  if (path_.empty() || conflicted_) return {};
  view_state_ = with_edits(edits_, view_state_);
  std::string text = view_state_.dump();
  auto written = file_.write_view_state(path_, written_, text);
  return take_written(std::move(text), std::move(written));
}

bool Session::autosave() {
  if (saving_state_) return false;
  if (path_.empty() || conflicted_) return true;
  view_state_ = with_edits(edits_, view_state_);
  saving_state_ = std::make_shared<StateWriting>();
  saving_state_->text = view_state_.dump();
  state_writer_ = std::jthread([this, path = path_, before = written_, state = saving_state_] {
    state->written = file_.write_view_state(path, before, state->text);
    inbox_.post([this, state] {
      if (state == saving_state_) settle_state();
    });
  });
  return true;
}

void Session::settle_state() {
  if (state_writer_.joinable()) state_writer_.join();
  const auto state = std::exchange(saving_state_, nullptr);
  if (!state) return;
  if (auto taken = take_written(std::move(state->text), std::move(state->written)); !taken) report(taken.error());
}

Result<void> Session::take_written(std::string text, Result<bool> written) {
  if (!written) return tl::unexpected<Error>(written.error());
  if (*written) {
    written_ = std::move(text);
    return {};
  }
  conflicted_ = true;
  changed(kFileChanged);
  return fail(path_.string(), "another window has changed this session meanwhile: nothing of it was overwritten",
              "File > Reload shows what it has, File > Keep this window's state takes this one's, Save session as… "
              "keeps both");
}

void Session::save_selection() {
  std::error_code ignored;
  if (path_.empty() || current() < 0 || !std::filesystem::exists(path_, ignored)) return;
  // Only a convenience: what keeps it from being written has been reported with what matters.
  (void)file_.write_selected(path_, to_json(rows()[static_cast<std::size_t>(current())].layout));
}

Result<void> Session::keep_mine() {
  settle_state();
  if (path_.empty()) return {};
  FORETRAIN_TRY(written_, file_.view_state(path_));
  conflicted_ = false;
  changed(kFileChanged);
  return save_view_state();
}

Result<void> Session::save_as(const std::filesystem::path& path) {
  settle_state();
  file_.wait();
  if (!path_.empty() && std::filesystem::exists(path_)) {
    if (!conflicted_) {
      if (auto saved = save_view_state(); !saved && !conflicted_) return saved;
    }
    file_.copy(path_, path, [this, path](Result<void> copied) {
      if (!copied) return report(copied.error());
      path_ = path;
      conflicted_ = false;
      if (auto state = file_.view_state(path_)) written_ = std::move(*state);
      if (auto saved = save_view_state(); !saved) report(saved.error());
      changed(kFileChanged);
    });
  } else {
    set_path(path);
    conflicted_ = false;
    if (auto saved = save_view_state(); !saved) return saved;
    if (!rows().empty()) write_results(results_);
  }
  changed(kFileChanged);
  return {};
}

void Session::take_out_runs(std::vector<std::int64_t> runs, std::function<void()> done) {
  file_.remove_runs(path_, std::move(runs), [this, done = std::move(done)](Result<void> removed) {
    if (!removed) return report(removed.error());
    done();
    changed(kFileChanged);
  });
}

void Session::rest_on_calibration() {
  recalibrated_ = false;
  calibration_.clear();
  if (!study_) return;
  if (auto text = calibration_text(environment_, study_->cluster.device)) calibration_ = std::move(*text);
}

void Session::calibration_changed() {
  const auto now = calibration_text(environment_, results_->study.cluster.device);
  recalibrated_ = !rows().empty() && (!now || *now != calibration_);
  details_.forget();
  changed(kStudyChanged | kDetailChanged);
}

Result<void> Session::use_calibration(const Calibration& calibration) {
  const std::filesystem::path file = own_calibration(environment_, calibration.name);
  FORETRAIN_TRY(const std::optional<std::string> before, kept_calibration(file));
  const std::optional<std::string> after = to_json(calibration).dump(2) + "\n";
  if (auto kept = keep_calibration(file, after); !kept) return kept;
  const auto put = [this, file](const std::optional<std::string>& text) {
    if (auto kept = keep_calibration(file, text); !kept) report(kept.error());
    calibration_changed();
  };
  if (acted)
    acted(
        "use a calibration of “" + calibration.name + "”", [put, before] { put(before); },
        [put, after] { put(after); });
  calibration_changed();
  return {};
}

} // namespace foretrain::gui
