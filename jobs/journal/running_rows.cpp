#include "jobs/journal/running_rows.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <span>

#include "jobs/output_dir.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxNoteBytes = 4096;

/// What the ranks of one replica left in one run.
struct Remains {
  std::string rows_path;
  std::vector<std::string> note_paths;
};

/// By "RUN-REPLICA", oldest run first.
std::map<std::string, Remains> list_running(const OutputDir& directory) {
  std::map<std::string, Remains> found;
  std::error_code error;
  if (!fs::exists(directory.running_dir(), error)) return found;
  for (fs::directory_iterator entry(directory.running_dir(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    Remains& remains = found[name.substr(0, name.find('.'))];
    if (name.ends_with(".rows"))
      remains.rows_path = entry->path().string();
    else
      remains.note_paths.push_back(entry->path().string());
  }
  if (error) throw Error(ErrorKind::kIo, "{} cannot be listed: {}", directory.running_dir(), error.message());
  return found;
}

std::set<int64_t> rows_in(const std::string& path) {
  std::set<int64_t> rows;
  if (path.empty()) return rows;
  const io::File file = io::File::open_read(path);
  std::vector<int64_t> values(static_cast<size_t>(file.size()) / sizeof(int64_t));
  file.read_exactly_at(0, std::as_writable_bytes(std::span(values)));
  for (const int64_t value : values)
    if (value > 0) rows.insert(value - 1);
  return rows;
}

/// A note is "ROW CAUSE": the row that the thread which died worked at alone, or -1. One that is cut off names none.
std::set<int64_t> rows_of(const Remains& remains, std::string& cause) {
  std::set<int64_t> rows;
  for (const std::string& path : remains.note_paths) {
    const std::string note = io::read_file(path, kMaxNoteBytes);
    int64_t row = -1;
    const auto [end, error] = std::from_chars(note.data(), note.data() + note.size(), row);
    cause = error == std::errc() && end != note.data() + note.size() ? std::string(end + 1, note.data() + note.size())
                                                                     : "its process died";
    std::replace(cause.begin(), cause.end(), '\n', ' ');
    if (row >= 0)
      rows.insert(row);
    else
      rows.merge(rows_in(remains.rows_path));
  }
  return rows;
}

}  // namespace

void RunningRows::begin(int64_t row) {
  if (!file_.is_open()) file_ = io::File::create_new(path_);
  int64_t slot = static_cast<int64_t>(slots_.size() + free_.size());
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
  }
  slots_.emplace(row, slot);
  write(slot, row + 1);
}

void RunningRows::end(int64_t row) {
  const auto found = slots_.find(row);
  if (found == slots_.end()) return;
  write(found->second, 0);
  free_.push_back(found->second);
  slots_.erase(found);
}

void RunningRows::write(int64_t slot, int64_t value) {
  file_.write_all_at(slot * static_cast<int64_t>(sizeof value), std::as_bytes(std::span(&value, 1)));
}

void RunningRows::remove() {
  if (!file_.is_open()) return;
  file_.close();
  std::error_code ignored;  // an empty list names no rows either
  fs::remove(path_, ignored);
}

std::map<int64_t, Deaths> read_deaths(const OutputDir& directory) {
  std::map<int64_t, Deaths> deaths;
  for (const auto& [name, remains] : list_running(directory)) {
    std::string cause;
    for (const int64_t row : rows_of(remains, cause)) {
      Deaths& of_row = deaths[row];
      ++of_row.count;
      of_row.cause = cause;
    }
  }
  return deaths;
}

void remove_idle_running(const OutputDir& directory) {
  std::error_code ignored;  // the next run tries again
  for (const auto& [name, remains] : list_running(directory))
    if (remains.note_paths.empty()) fs::remove(remains.rows_path, ignored);
}

}  // namespace tokenmill::jobs
