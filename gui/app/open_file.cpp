// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/open_file.h"

#include <array>
#include <fstream>

#include "core/spec/io.h"

namespace foretrain::gui {
namespace {

constexpr std::string_view kDatabase = {"SQLite format 3", 16}; // with the zero that ends it

bool is_database(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::array<char, 16> head{};
  stream.read(head.data(), head.size());
  return stream.gcount() == 16 && std::string_view(head.data(), head.size()) == kDatabase;
}

/// The records of foretrain-run: a document a line, the first says what it is.
bool is_run(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string line;
  if (!std::getline(stream, line) || line.find("\"format\"") == std::string::npos) return false;
  const auto head = parse_json(line, file.string());
  return head && head->is_object() && head->contains("format") && (*head)["format"].is_string() &&
         (*head)["format"].get<std::string>().starts_with("foretrain-run ");
}

FileKind kind_of(const Json& json) {
  if (!json.is_object()) return FileKind::unknown;
  if (json.contains("layout") && json.contains("job")) return FileKind::plan;
  if (json.contains("job") && json.contains("model")) return FileKind::study;
  if (json.contains("tiers") && json.contains("device")) return FileKind::cluster;
  if (json.contains("architectures") || json.contains("model_type") || json.contains("hidden")) return FileKind::model;
  return FileKind::unknown;
}

void set_part(Session& session, const char* key, Json value) {
  session.edit(std::string("set ") + key, [&](Edits& edits) {
    if (!edits.document.is_object())
      edits.document = {
          {"model", "llama3-8b"}, {"cluster", "dgx-h100"}, {"job", {{"sequence_length", 8192}, {"global_batch", 256}}}};
    edits.document[key] = std::move(value);
  });
}

} // namespace

Result<KnownFile> look_into(const std::filesystem::path& file) {
  if (is_database(file)) return KnownFile{FileKind::session, {}};
  if (is_run(file)) return KnownFile{FileKind::run, {}};
  FORETRAIN_TRY(Json json, read_json_file(file));
  const FileKind kind = kind_of(json);
  return KnownFile{kind, std::move(json)};
}

std::string what_it_does(FileKind kind) {
  switch (kind) {
  case FileKind::session:
    return "opens the session";
  case FileKind::study:
    return "opens the study";
  case FileKind::plan:
    return "takes the plan's model, cluster and job as a study";
  case FileKind::cluster:
    return "takes the cluster for the study";
  case FileKind::model:
    return "takes the model for the study";
  case FileKind::run:
    return "takes the run into the session";
  case FileKind::unknown:
    return "is neither a session nor a study, plan, cluster, model or run";
  }
  return {};
}

Result<void> open_any(Session& session, const std::filesystem::path& file) {
  std::error_code failed;
  if (std::filesystem::is_directory(file, failed)) return fail(file.string(), "is a folder", "open a file in it");
  FORETRAIN_TRY(KnownFile known, look_into(file));
  const std::string name = file.filename().string();
  switch (known.kind) {
  case FileKind::session:
    return session.open_file(file);
  case FileKind::study: {
    // Names in it may stand for files beside it: what is opened is what they give.
    const bool names_files = known.json["model"].is_string() &&
                             known.json["model"].get<std::string>().find_first_of("./") != std::string::npos;
    if (names_files) {
      FORETRAIN_TRY(const Study study, study_from(known.json, file.string(), session.environment().data));
      known.json = to_json(study);
    }
    session.open_study(known.json, "open " + name); // one with a mistake too: the editor shows where, to be mended
    return {};
  }
  case FileKind::plan: {
    known.json.erase("layout");
    session.open_study(known.json, "open " + name);
    return {};
  }
  case FileKind::cluster: {
    FORETRAIN_TRY(const ClusterSpec cluster, cluster_from(known.json, file.string(), session.environment().data));
    set_part(session, "cluster", to_json(cluster));
    return {};
  }
  case FileKind::model: {
    FORETRAIN_TRY(const ModelSpec model, load_model(session.environment().data, file.string()));
    set_part(session, "model", to_json(model));
    return {};
  }
  case FileKind::run:
    return fail(file.string(), "is a run: it is imported into an open session", "foretrain db import SESSION RUN");
  case FileKind::unknown:
    break;
  }
  return fail(file.string(), what_it_does(FileKind::unknown), "see docs/file-formats.md");
}

} // namespace foretrain::gui
