#pragma once
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <queue>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "io/file.h"

namespace tokenmill::io {

/// Sorts more values than memory shall hold: full buffers go to a file as sorted runs, which are merged at the end.
/// T: plain bytes, ordered by <. One thread.
template <typename T>
class SortedRuns {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  /// path: a file to be made when the buffer of so many values is full, and removed at the end; empty: all stay in
  /// memory.
  explicit SortedRuns(std::string path = "", size_t buffer_values = size_t{1} << 18)
      : path_(std::move(path)), buffer_values_(buffer_values) {}
  ~SortedRuns() { remove_file(); }
  SortedRuns(const SortedRuns&) = delete;
  SortedRuns& operator=(const SortedRuns&) = delete;

  /// Throws Error(kIo) when the file cannot be written.
  void add(const T& value) {
    buffer_.push_back(value);
    if (!path_.empty() && buffer_.size() == buffer_values_) spill();
  }

  /// Hands all values to visit(const T&) in ascending order, once; nothing is left then.
  template <typename Visit>
  void take_all(Visit&& visit) {
    std::sort(buffer_.begin(), buffer_.end());
    if (runs_.empty()) {
      for (const T& value : buffer_) visit(value);
    } else {
      if (!buffer_.empty()) spill();
      writer_[0].close();
      merge(visit);
    }
    buffer_ = {};
    runs_.clear();
    remove_file();
  }

 private:
  /// Values [next, end) of the file, some of them in memory.
  struct Run {
    int64_t next = 0, end = 0;
    std::vector<T> values = {};
    size_t at = 0;
  };

  void spill() {
    std::sort(buffer_.begin(), buffer_.end());
    if (writer_.empty()) writer_.emplace_back(File::create(path_));
    const auto begin = writer_[0].offset() / static_cast<int64_t>(sizeof(T));
    writer_[0].write({reinterpret_cast<const char*>(buffer_.data()), buffer_.size() * sizeof(T)});
    runs_.push_back({begin, begin + static_cast<int64_t>(buffer_.size())});
    buffer_.clear();
  }

  bool refill(const File& file, Run& run) const {
    run.at = 0;
    const auto share = static_cast<int64_t>(buffer_values_ / runs_.size());
    run.values.resize(static_cast<size_t>(std::min(run.end - run.next, std::clamp<int64_t>(share, 64, 4096))));
    file.read_exactly_at(run.next * static_cast<int64_t>(sizeof(T)), std::as_writable_bytes(std::span(run.values)));
    run.next += static_cast<int64_t>(run.values.size());
    return !run.values.empty();
  }

  template <typename Visit>
  void merge(Visit& visit) {
    buffer_ = {};
    const File file = File::open_read(path_);
    const auto later = [&](size_t a, size_t b) { return runs_[b].values[runs_[b].at] < runs_[a].values[runs_[a].at]; };
    std::priority_queue<size_t, std::vector<size_t>, decltype(later)> heads(later);
    for (size_t i = 0; i < runs_.size(); ++i)
      if (refill(file, runs_[i])) heads.push(i);
    while (!heads.empty()) {
      const size_t first = heads.top();
      heads.pop();
      Run& run = runs_[first];
      visit(std::as_const(run.values[run.at]));
      if (++run.at < run.values.size() || refill(file, run)) heads.push(first);
    }
  }

  void remove_file() noexcept {
    if (writer_.empty()) return;
    writer_.clear();
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  std::string path_;
  size_t buffer_values_;
  std::vector<T> buffer_;
  std::vector<Run> runs_;
  std::vector<FileWriter> writer_;  // one, once the file is made
};

}  // namespace tokenmill::io
