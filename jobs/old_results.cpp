#include "jobs/old_results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <span>
#include <system_error>

#include "io/file.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNamed = 3;  // foreign paths in a message
/// In the scratch directory, besides unpacked inputs.
constexpr const char* kScratchNames[] = {OutputDir::kRowPlanName, OutputDir::kNativeIdsName, OutputDir::kCustomIdsName};

bool is_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// name is digits, "-", digits, suffix: a run and a replica.
bool is_part(std::string_view name, std::string_view suffix) {
  const size_t dash = name.find('-');
  return dash != name.npos && name.ends_with(suffix) && is_digits(name.substr(0, dash)) &&
         is_digits(name.substr(dash + 1, name.size() - suffix.size() - dash - 1));
}

/// Of journal/running: the rows of a replica, or the death note of one of its ranks.
bool is_running(std::string_view name) {
  const std::string_view suffix = name.substr(std::min(name.find('.'), name.size()));
  return is_part(name, suffix) && (suffix == ".rows" || (suffix.starts_with(".rank") && is_digits(suffix.substr(5))));
}

/// name is prefix, digits, suffix.
bool is_numbered(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (name.size() < prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix)) return false;
  return is_digits(name.substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
}

/// What a journal's marker says; empty: it is no journal of tokenmill's.
std::string marker_of(const fs::path& journal) {
  const fs::path marker = journal / OutputDir::kMarkerName;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(marker, error);
  // "Not tokenmill's" would bring people to replace it.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw Error(ErrorKind::kIo, "{}: the journal cannot be looked at: {}", marker.string(), error.message());
  if (!fs::is_regular_file(status) || fs::file_size(marker, error) > 64) return "";
  std::string text = io::read_file(marker.string(), 64);
  return text.starts_with("tokenmill journal ") && text.ends_with('\n') ? text : "";
}

/// The journal holds nothing but a marker whose writing was interrupted: some of its beginning, or what a lost block reads as.
bool has_torn_marker_alone(const fs::path& journal, const std::vector<fs::path>& entries) {
  const fs::path marker = journal / OutputDir::kMarkerName;
  std::error_code error;
  if (entries.size() != 1 || entries[0] != marker || !fs::is_regular_file(fs::symlink_status(marker, error)) ||
      fs::file_size(marker, error) > 64)
    return false;
  const std::string text = io::read_file(marker.string(), 64);
  return std::string_view(kJournalMarker).starts_with(text) || text.find_first_not_of('\0') == text.npos;
}

/// Collects what may be removed and what must stay.
class Survey {
 public:
  explicit Survey(const OutputDir& directory) : directory_(directory) {}

  void add(const std::string& name) {
    const fs::path path = fs::path(directory_.path()) / name;
    if (is_journal_name(name))
      add_journal(path);
    else if (OutputDir::is_output_parts(name))
      add_output_parts(path);
    else
      add_file(path);
  }

  bool all_ours() const { return foreign_.empty(); }
  std::vector<std::string> take() {
    if (foreign_.empty()) return std::move(removable_);
    const size_t named = std::min(kMaxNamed, foreign_.size());
    throw Error(
        ErrorKind::kConfig,
        "--restart will not remove from {} what tokenmill did not write: {}{}; move it, or choose another --output",
        directory_.path(), fmt::join(foreign_.begin(), foreign_.begin() + static_cast<std::ptrdiff_t>(named), ", "),
        foreign_.size() > named ? fmt::format(" and {} more", foreign_.size() - named) : "");
  }

 private:
  static bool is_journal_name(const std::string& name) { return name == "journal" || name.starts_with("journal.tmp."); }

  void add_foreign(const fs::path& path, const std::string& what) {
    foreign_.push_back(fmt::format("{} ({})", path.lexically_relative(directory_.path()).string(), what));
  }

  void add_file(const fs::path& path) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(path, error);
    if (fs::is_regular_file(status))
      removable_.push_back(path.string());
    else if (status.type() != fs::file_type::not_found)
      add_foreign(path, fs::is_directory(status) ? "a directory"
                        : fs::is_symlink(status) ? "a symbolic link"
                                                 : "not a regular file");
  }

  /// Entries of a directory; false when there is none (foreign, or gone).
  bool list(const fs::path& path, std::vector<fs::path>& entries) {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(path, error);
    if (status.type() == fs::file_type::not_found) return false;
    if (!fs::is_directory(status)) {
      add_foreign(path, fs::is_symlink(status) ? "a symbolic link" : "not a directory");
      return false;
    }
    for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
      entries.push_back(entry->path());
    if (error) throw Error(ErrorKind::kIo, "{} cannot be listed: {}", path.string(), error.message());
    std::sort(entries.begin(), entries.end());
    return true;
  }

  /// A directory and those of its entries whose names are ours.
  void add_directory(const fs::path& path, const std::function<bool(const std::string&)>& is_ours) {
    std::vector<fs::path> entries;
    if (!list(path, entries)) return;
    for (const fs::path& entry : entries)
      if (is_ours(entry.filename().string()))
        add_file(entry);
      else
        add_foreign(entry, "unknown");
    removable_.push_back(path.string());
  }

  void add_numbered(const fs::path& path, std::string_view suffix, std::span<const char* const> others = {}) {
    add_directory(path, [&](const std::string& name) {
      return is_part(name, suffix) || is_numbered(name, "", suffix) ||
             std::find(others.begin(), others.end(), name) != others.end();
    });
  }

  void add_output_parts(const fs::path& path) {
    add_directory(path, [](std::string name) {
      if (const size_t temporary = name.find(".tmp."); temporary != name.npos && is_digits(name.substr(temporary + 5)))
        name.resize(temporary);
      return is_numbered(name, "", ".h5") || is_numbered(name, "", ".jsonl");
    });
  }

  /// An empty one is what an interruption leaves between making the directory and its marker. The identity goes first: a
  /// journal without it is not continued, so that an interrupted removal does not make a job of the rest.
  void add_journal(const fs::path& path) {
    std::vector<fs::path> entries;
    if (!list(path, entries)) return;
    if (!entries.empty() && marker_of(path).empty() && !has_torn_marker_alone(path, entries)) {
      add_foreign(path, fmt::format("without tokenmill's {} file", OutputDir::kMarkerName));
      return;
    }
    const fs::path marker = path / OutputDir::kMarkerName, identity = path / OutputDir::kIdentityName;
    if (std::find(entries.begin(), entries.end(), identity) != entries.end()) add_file(identity);  // first: see above
    for (const fs::path& entry : entries) {
      const std::string name = entry.filename().string();
      if (name == "parts")
        add_numbered(entry, ".jsonl");
      else if (name == "scratch")
        add_numbered(entry, ".jsonl", kScratchNames);
      else if (name == "ledger")
        add_numbered(entry, ".ledger");
      else if (name == "running")
        add_directory(entry, is_running);
      else if (name == OutputDir::kOwnerName || name == OutputDir::kSignOfLifeName || name == OutputDir::kOutputsName ||
               name == kNewOwnerName || is_numbered(name, "row_metrics.", ".jsonl"))
        add_file(entry);
      else if (entry != marker && entry != identity)
        add_foreign(entry, "unknown");
    }
    if (!entries.empty()) removable_.push_back(marker.string());  // last: an interrupted removal can be repeated
    removable_.push_back(path.string());
  }


  const OutputDir& directory_;
  std::vector<std::string> removable_, foreign_;
};

}  // namespace

std::string journal_problem(const OutputDir& directory) {
  const std::string marker = marker_of(directory.journal());
  if (marker.empty()) return "and a journal that is not tokenmill's";
  if (marker != kJournalMarker) return "by another version of tokenmill (" + marker.substr(0, marker.size() - 1) + ")";
  std::error_code error;
  if (fs::is_regular_file(fs::symlink_status(directory.identity_path(), error))) return "";
  return "whose removal was interrupted";  // the identity goes first
}

std::vector<std::string> removable_results(const OutputDir& directory, const std::string& own) {
  Survey survey(directory);
  for (const std::string& name : directory.results()) survey.add(name);
  for (const std::string& name : directory.leftovers())
    if (name != own) survey.add(name);
  return survey.take();
}

void remove_leftovers(const OutputDir& directory, const std::string& own) {
  for (const std::string& name : directory.leftovers()) {
    if (name == own) continue;
    Survey survey(directory);
    survey.add(name);
    if (survey.all_ours()) remove_paths(survey.take());
  }
}

void remove_output_parts(const OutputDir& directory, const std::string& keep) {
  for (const std::string& name : directory.results()) {
    if (!OutputDir::is_output_parts(name) || directory.path() + "/" + name == keep) continue;
    Survey survey(directory);
    survey.add(name);
    if (survey.all_ours()) remove_paths(survey.take());
  }
}

bool lies_in(const std::string& directory, const std::string& result, const std::string& path) {
  std::error_code error;
  const fs::path relative =
      fs::weakly_canonical(path, error).lexically_relative(fs::weakly_canonical(directory, error));
  return !relative.empty() && *relative.begin() == result;
}

void check_not_results(const OutputDir& directory, const std::vector<std::string>& paths) {
  for (const std::string& result : directory.results())
    for (const std::string& path : paths)
      if (lies_in(directory.path(), result, path))
        throw Error(ErrorKind::kConfig,
                    "{} is used by this run and is among the results in {} that it replaces; move it, or choose another "
                    "--output",
                    path, directory.path());
}

void remove_paths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    std::error_code error;
    fs::remove(path, error);
    if (error) throw Error(ErrorKind::kIo, "{} cannot be removed: {}", path, error.message());
  }
}

void remove_scratch(const std::string& scratch_dir) noexcept {
  std::error_code error;
  std::vector<fs::path> unpacked;
  for (fs::directory_iterator entry(scratch_dir, error), end; !error && entry != end; entry.increment(error))
    if (is_numbered(entry->path().filename().string(), "", ".jsonl")) unpacked.push_back(entry->path());
  for (const fs::path& path : unpacked) fs::remove(path, error);
  for (const char* name : kScratchNames) fs::remove(fs::path(scratch_dir) / name, error);
  fs::remove(scratch_dir, error);
}

}  // namespace tokenmill::jobs
