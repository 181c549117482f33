#include "executor/checkpoint/checkpoint.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

#include "core/base/digest.h"
#include "core/spec/io.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "foretrain-checkpoint 1";
constexpr const char* kIndex = "index.json";
constexpr const char* kFolder = "step-";
constexpr const char* kPieces = "pieces"; ///< key of a shard's metadata

/// The entries of a folder are on the disk.
Result<void> keep_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return fail_environment(folder.string(), std::string("cannot be opened: ") + std::strerror(errno));
  const int failed = ::fsync(descriptor);
  const int problem = errno;
  ::close(descriptor);
  // Some file systems cannot do this to folders, and say so.
  if (failed == 0 || problem == EINVAL) return {};
  return fail_environment(folder.string(), std::string("cannot be written: ") + std::strerror(problem));
}

/// The text of a new file is on the disk.
Result<void> keep_text(const fs::path& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return fail_environment(path.string(), std::string("cannot be opened: ") + std::strerror(errno));
  const ssize_t written = ::write(file, text.data(), text.size());
  int problem = errno;
  const bool whole = written == static_cast<ssize_t>(text.size());
  const bool kept = whole && ::fsync(file) == 0;
  if (whole && !kept) problem = errno;
  ::close(file);
  if (kept) return {};
  return fail_environment(path.string(), std::string("cannot be written: ") +
                                             (written >= 0 && !whole ? "the disk is full" : std::strerror(problem)));
}

std::optional<int> steps_of(const std::string& name) {
  const std::string digits = name.rfind(kFolder, 0) == 0 ? name.substr(std::strlen(kFolder)) : "";
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoi(digits);
}

Json piece_json(const StatePart& part, std::int64_t count) {
  Json rows = Json::array();
  for (const Slice::Rows& piece : part.slice.rows) rows.push_back({piece.first, piece.count});
  Json json;
  json["shape"] = part.shape;
  json["rows"] = std::move(rows);
  json["columns"] = {part.slice.first_column, part.slice.columns, part.slice.whole_columns};
  json["elements"] = {part.first, count};
  json["digest"] =
      digest({static_cast<const char*>(part.data), static_cast<std::size_t>(count * safetensors::width_of(part.type))});
  return json;
}

/// Elements of the slice, and whether all its numbers make sense.
bool is_slice(const Slice& slice, std::int64_t first, std::int64_t count) {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;
  const auto sane = [](std::int64_t number) { return number >= 0 && number <= kMost; };
  if (!sane(slice.first_column) || slice.columns < 1 || slice.whole_columns > (std::int64_t{1} << 31) ||
      slice.first_column + slice.columns > slice.whole_columns || !sane(first) || !sane(count))
    return false;
  std::int64_t elements = 0;
  std::int64_t last = 0;
  for (const Slice::Rows& piece : slice.rows) {
    if (!sane(piece.first) || !sane(piece.count) || piece.first < last ||
        piece.first + piece.count > kMost / slice.whole_columns)
      return false;
    last = piece.first + piece.count;
    elements += piece.count * slice.columns;
  }
  return first + count <= elements;
}

/// One tensor of a shard. "": all well; else what is wrong.
std::string read_piece(const Json& json, const safetensors::Entry& entry, PieceSource::Piece& piece) {
  Slice slice;
  for (const Json& rows : json.at("rows"))
    slice.rows.push_back({rows.at(0).get<std::int64_t>(), rows.at(1).get<std::int64_t>()});
  const Json& columns = json.at("columns");
  slice.first_column = columns.at(0).get<std::int64_t>();
  slice.columns = columns.at(1).get<std::int64_t>();
  slice.whole_columns = columns.at(2).get<std::int64_t>();
  const auto first = json.at("elements").at(0).get<std::int64_t>();
  const auto count = json.at("elements").at(1).get<std::int64_t>();
  if (!is_slice(slice, first, count) || count != entry.elements()) return "does not say which elements it has";
  piece.stretches = stretches_of(slice, first, count);
  piece.digest = json.at("digest").get<std::string>();
  return "";
}

Result<void> add_pieces(const std::shared_ptr<const safetensors::File>& file, PieceSource& source) {
  const auto broken = [&](const std::string& what) {
    return fail_environment(file->path().string(), "is no shard of a checkpoint: " + what);
  };
  const auto text = file->metadata().find(kPieces);
  if (text == file->metadata().end()) return broken("its header has no pieces");
  const auto pieces = parse_json(text->second, file->path().string());
  if (!pieces || !pieces->is_object()) return broken("its pieces are no JSON object");
  try {
    for (const auto& [name, json] : pieces->items()) {
      const auto entry = file->entries().find(name);
      if (entry == file->entries().end()) return broken("there is no tensor '" + name + "'");
      PieceSource::Piece piece{file, name, {}, ""};
      if (const std::string problem = read_piece(json, entry->second, piece); !problem.empty())
        return broken("'" + name + "' " + problem);
      source.add(name, std::move(piece));
    }
  } catch (const std::exception& error) { // of the JSON library: a member is missing or of another type
    return broken(error.what());
  }
  return {};
}

/// What two models must have in common.
Json shape_of(const ModelSpec& model) {
  Json json = to_json(model);
  for (const char* words : {"name", "notes", "source"}) json.erase(words);
  return json;
}

Result<void> differs(const Checkpoint& checkpoint, const std::string& what, const std::string& theirs,
                     const std::string& ours, const std::string& hint = "") {
  return fail(checkpoint.folder.string(), "was made with " + what + " " + theirs + ", the plan has " + ours, hint);
}

Result<void> check_same_model(const Checkpoint& checkpoint, const Plan& plan) {
  const Json theirs = shape_of(checkpoint.model);
  const Json ours = shape_of(plan.model);
  for (const Json* side : {&theirs, &ours})
    for (const auto& [key, unused] : side->items()) {
      const Json a = theirs.value(key, Json());
      const Json b = ours.value(key, Json());
      if (a != b) return differs(checkpoint, "model/" + key, a.dump(), b.dump(), "it is another model");
    }
  return {};
}

} // namespace

std::string checkpoint_name(int steps) {
  std::array<char, 24> name{};
  std::snprintf(name.data(), name.size(), "%s%08d", kFolder, steps);
  return name.data();
}

std::string shard_name(int rank) {
  std::array<char, 40> name{};
  std::snprintf(name.data(), name.size(), "rank-%05d.safetensors", rank);
  return name.data();
}

Result<fs::path> newest_checkpoint(const fs::path& folder) {
  std::error_code problem;
  if (fs::exists(folder / kIndex, problem)) return folder;
  std::optional<int> newest;
  fs::directory_iterator entries(folder, problem);
  if (problem)
    return fail(folder.string(), "cannot be read: " + problem.message(), "the folder that --checkpoint named");
  for (const fs::directory_entry& entry : entries) {
    const auto steps = steps_of(entry.path().filename().string());
    if (steps && (!newest || *steps > *newest)) newest = steps;
  }
  if (!newest) return fail(folder.string(), "has no checkpoint", "the folder that --checkpoint named");
  return folder / checkpoint_name(*newest);
}

Result<Checkpoint> read_checkpoint(const fs::path& folder) {
  const std::string file = (folder / kIndex).string();
  FORETRAIN_TRY(const Json json, read_json_file(file));
  if (!json.is_object() || json.value("format", Json()) != kFormat)
    return fail(file, "is no index of a checkpoint that this version reads", std::string("format \"") + kFormat + "\"");
  Checkpoint checkpoint;
  checkpoint.folder = folder;
  try {
    checkpoint.state.steps = json.at("steps").get<int>();
    checkpoint.state.seed = json.at("seed").get<std::uint64_t>();
    checkpoint.state.data = json.at("data");
    for (const Json& shard : json.at("shards"))
      checkpoint.shards.push_back({shard.at("name").get<std::string>(), shard.at("bytes").get<std::int64_t>(),
                                   shard.at("header").get<std::string>()});
    FORETRAIN_TRY(checkpoint.model, model_from(json.at("model"), file + ":/model"));
    FORETRAIN_TRY(checkpoint.job, job_from(json.at("job"), file + ":/job"));
    FORETRAIN_TRY(checkpoint.layout, layout_from(json.at("layout"), file + ":/layout"));
  } catch (const std::exception& error) { // of the JSON library: a member is missing or of another type
    return fail(file, std::string("is damaged: ") + error.what());
  }
  if (checkpoint.state.steps < 0 || checkpoint.shards.empty()) return fail(file, "is damaged: it names no shards");
  for (const Checkpoint::Shard& shard : checkpoint.shards)
    if (shard.name.find('/') != std::string::npos) return fail(file, "names a shard outside its folder: " + shard.name);
  return checkpoint;
}

Result<void> check_same_training(const Checkpoint& checkpoint, const Plan& plan, const CheckpointState& state) {
  if (auto same = check_same_model(checkpoint, plan); !same) return same;
  const Json theirs = to_json(checkpoint.job);
  const Json ours = to_json(plan.job);
  for (const char* key : {"precision", "optimizer", "global_batch", "sequence_length"}) {
    const Json a = theirs.value(key, Json());
    const Json b = ours.value(key, Json());
    if (a != b) return differs(checkpoint, std::string("job/") + key, a.dump(), b.dump());
  }
  if (checkpoint.state.seed != state.seed)
    return differs(checkpoint, "seed", std::to_string(checkpoint.state.seed), std::to_string(state.seed),
                   "--seed " + std::to_string(checkpoint.state.seed));
  if (checkpoint.state.data != state.data)
    return differs(checkpoint, "the tokens", checkpoint.state.data.dump(), state.data.dump(), "--tokens");
  return {};
}

Result<PieceSource> open_shards(const Checkpoint& checkpoint) {
  PieceSource source;
  for (const Checkpoint::Shard& shard : checkpoint.shards) {
    FORETRAIN_TRY(safetensors::File opened, safetensors::File::open(checkpoint.folder / shard.name));
    const auto file = std::make_shared<const safetensors::File>(std::move(opened));
    if (file->bytes() != shard.bytes || digest(file->header()) != shard.header)
      return fail_environment(file->path().string(), "is not the shard that the checkpoint was made with");
    if (auto added = add_pieces(file, source); !added) return tl::unexpected<Error>(added.error());
  }
  return source;
}

Result<void> write_shard(const fs::path& folder, int rank, const std::vector<StatePart>& parts) {
  std::vector<safetensors::Entry> entries;
  Json pieces = Json::object();
  for (const StatePart& part : parts) {
    const std::int64_t count = part.unpadded();
    if (count == 0) continue;
    entries.push_back({part.key, part.type, {count}, 0});
    pieces[part.key] = piece_json(part, count);
  }
  FORETRAIN_TRY(safetensors::Writer writer,
                safetensors::Writer::create(folder / shard_name(rank), std::move(entries),
                                            {{"format", kFormat}, {kPieces, pieces.dump()}}));
  for (const StatePart& part : parts)
    if (auto put = writer.put(part.data, part.unpadded() * safetensors::width_of(part.type)); !put) return put;
  return writer.finish();
}

fs::path unfinished_checkpoint(const fs::path& all, int steps) {
  return all / ("." + checkpoint_name(steps) + ".unfinished");
}

void drop_checkpoint(const fs::path& all, int steps) {
  std::error_code ignored;
  fs::remove_all(unfinished_checkpoint(all, steps), ignored);
}

Result<void> begin_checkpoint(const fs::path& all, int steps) {
  drop_checkpoint(all, steps);
  std::error_code problem;
  fs::create_directories(unfinished_checkpoint(all, steps), problem);
  if (!problem) return {};
  return fail_environment(all.string(), "cannot be made: " + problem.message(), "--checkpoint names a folder");
}

Result<void> commit_checkpoint(const fs::path& all, const Plan& plan, const CheckpointState& state, int world) {
  const fs::path folder = unfinished_checkpoint(all, state.steps);
  Json index;
  index["format"] = kFormat;
  index["steps"] = state.steps;
  index["seed"] = state.seed;
  index["data"] = state.data;
  index["model"] = to_json(plan.model);
  index["job"] = to_json(plan.job);
  index["layout"] = to_json(plan.layout);
  Json shards = Json::array();
  for (int rank = 0; rank < world; ++rank) {
    FORETRAIN_TRY(const safetensors::File file, safetensors::File::open(folder / shard_name(rank)));
    shards.push_back({{"name", shard_name(rank)}, {"bytes", file.bytes()}, {"header", digest(file.header())}});
  }
  index["shards"] = std::move(shards);
  if (auto kept = keep_text(folder / kIndex, index.dump(1) + "\n"); !kept) return kept;
  if (auto kept = keep_folder(folder); !kept) return kept;
  const fs::path name = all / checkpoint_name(state.steps);
  std::error_code problem;
  if (fs::exists(name, problem)) { // the same steps once more, after going back to an earlier checkpoint
    if (::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, name.c_str(), RENAME_EXCHANGE) != 0)
      return fail_environment(name.string(), std::string("cannot be replaced: ") + std::strerror(errno));
    fs::remove_all(folder, problem);
    return keep_folder(all);
  }
  fs::rename(folder, name, problem);
  if (problem) return fail_environment(name.string(), "cannot be made: " + problem.message());
  return keep_folder(all);
}

} // namespace foretrain
