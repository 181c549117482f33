// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <filesystem>
#include <string>

#include "core/base/json.h"
#include "core/base/result.h"
#include "gui/model/session.h"

namespace foretrain::gui {

/// What a file is, by its content.
enum class FileKind { session, study, plan, cluster, model, run, unknown };

struct KnownFile {
  FileKind kind = FileKind::unknown;
  Json json; ///< null for sessions
};

/// Looks into a file. Error: it cannot be read.
[[nodiscard]] Result<KnownFile> look_into(const std::filesystem::path& file);
/// "opens the session", "takes the model": what opening it would do, for the drop.
[[nodiscard]] std::string what_it_does(FileKind kind);
/// Opens it: a session is shown, a study replaces the one that is edited, a cluster or a model becomes a part of it.
/// A study that does not read is opened with its problems. Error: also for a run, which the command line imports.
[[nodiscard]] Result<void> open_any(Session& session, const std::filesystem::path& file);

} // namespace foretrain::gui
