#include "app/stage_in.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "app/model_choice.h"
#include "engine/memory_plan.h"
#include "io/file.h"
#include "io/file_digest.h"
#include "io/temporaries.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

namespace tokenmill::app {
namespace {

namespace fs = std::filesystem;

/// Calls take(bytes) for a file's contents from front to back; returns their XXH3.
template <typename Take>
uint64_t read_through(const std::string& path, Take&& take) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  const io::File file = io::File::open_read(path);
  file.will_read_sequentially();
  std::vector<std::byte> buffer(static_cast<size_t>(io::kReadChunkBytes));
  for (int64_t offset = 0, size = file.size(); offset < size;) {
    const auto part = std::span(buffer).first(static_cast<size_t>(std::min(io::kReadChunkBytes, size - offset)));
    file.read_exactly_at(offset, part);
    XXH3_64bits_update(state.get(), part.data(), part.size());
    take(std::string_view(reinterpret_cast<const char*>(part.data()), part.size()));
    offset += static_cast<int64_t>(part.size());
  }
  return XXH3_64bits_digest(state.get());
}

/// One file of the model and its copy. Beside the copy lies what is known of it: NAME.staged.
struct StagedFile {
  std::string source, digest, target;
  int64_t bytes = 0;

  std::string note_path() const { return target + ".staged"; }
  std::string note(uint64_t checksum) const { return fmt::format("{}\n{:016x}\n", digest, checksum); }

  bool is_there(const std::function<void()>& on_progress) const {
    constexpr int64_t kMostNoteBytes = 256;
    std::error_code error;
    if (!fs::is_regular_file(target, error) || fs::file_size(target, error) != static_cast<uintmax_t>(bytes) ||
        !fs::is_regular_file(note_path(), error) || fs::file_size(note_path(), error) > kMostNoteBytes)
      return false;
    const std::string found = io::read_file(note_path(), kMostNoteBytes);
    return found.starts_with(digest + "\n") && found == note(read_through(target, [&](std::string_view) { on_progress(); }));
  }

  void copy(const std::function<void()>& on_progress) const {
    std::error_code ignored;
    fs::remove(note_path(), ignored);  // first: it is not the new copy's
    io::AtomicFile out(target);
    const uint64_t checksum = read_through(source, [&](std::string_view part) {
      out.write(part);
      on_progress();
    });
    if (out.offset() != bytes)
      throw Error(ErrorKind::kIo, "{} changed while it was copied: it had {} bytes and gave {}", source, bytes, out.offset());
    out.commit();
    io::write_file_atomically(note_path(), note(checksum));
  }
};

bool is_model_file(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".json" || extension == ".jinja" || extension == ".safetensors";
}

/// Without targets, in order of name.
std::vector<StagedFile> model_files(const std::string& model) {
  std::vector<std::string> paths;
  if (fs::is_directory(model)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(model))
      if (entry.is_regular_file() && is_model_file(entry.path())) paths.push_back(entry.path().string());
    std::sort(paths.begin(), paths.end());
  } else {
    paths.push_back(model);
  }
  std::vector<StagedFile> files;
  for (const std::string& path : paths)
    files.push_back({.source = path, .digest = io::file_digest(path), .bytes = static_cast<int64_t>(fs::file_size(path))});
  return files;
}

void check_room(const std::string& directory, int64_t needed) {
  const auto free = static_cast<int64_t>(std::min<uintmax_t>(fs::space(directory).available, INT64_MAX));
  if (free < needed)
    throw Error(ErrorKind::kIo,
                "{} on {}: the model needs {} there and {} are free; free space, name another directory, or leave "
                "--stage-dir out",
                directory, parallel::host_name(), format_bytes(needed), format_bytes(free));
}

StagedModel stage(const std::string& model, const std::string& name, const std::string& stage_dir,
                  const std::function<void()>& on_progress) {
  std::vector<StagedFile> files = model_files(model);
  std::string identity;
  for (const StagedFile& file : files) identity += fs::path(file.source).filename().string() + "\n" + file.digest + "\n";
  const std::string directory =
      fmt::format("{}/{}-{:016x}", stage_dir, name, XXH3_64bits(identity.data(), identity.size()));
  fs::create_directories(directory);
  StagedModel staged{.path = fs::is_directory(model) ? directory : directory + "/" + fs::path(model).filename().string()};
  std::vector<const StagedFile*> missing;
  for (StagedFile& file : files) {
    file.target = directory + "/" + fs::path(file.source).filename().string();
    io::remove_abandoned_temporaries(file.target);
    const bool kept = file.is_there(on_progress);
    (kept ? staged.bytes_kept : staged.bytes_copied) += file.bytes;
    if (!kept) missing.push_back(&file);
  }
  check_room(directory, staged.bytes_copied);
  for (const StagedFile* file : missing) file->copy(on_progress);
  return staged;
}

}  // namespace

StagedModel stage_files(const std::string& model, const std::string& model_name, const std::string& stage_dir,
                        const std::function<void()>& on_progress) {
  try {
    return stage(model, model_name, stage_dir, on_progress);
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorKind::kIo, "--stage-dir: {}: {}; name a directory that can be made and written to",
                error.path1().string(), error.code().message());
  } catch (const std::exception& error) {
    throw Error(ErrorKind::kIo, "--stage-dir: {}", error.what());
  }
}

void stage_model(RunOptions& options, const Ranks& ranks, const parallel::Comm& world,
                 const std::function<void()>& on_progress) {
  const parallel::Comm& node = ranks.groups.node;
  StagedModel staged;
  parallel::agree_on(world, [&] {
    if (node.rank() == 0) staged = stage_files(options.model, model_name(options), options.stage_dir, on_progress);
  });
  parallel::broadcast_bytes(node, staged.path, 0);
  options.staged_model = staged.path;
  if (world.rank() == 0)
    log::info("model staged in {}: {} copied, {} were there", staged.path, format_bytes(staged.bytes_copied),
              format_bytes(staged.bytes_kept));
}

}  // namespace tokenmill::app
