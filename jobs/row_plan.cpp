#include "jobs/row_plan.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/core/stopwatch.h"

namespace tokenmill::jobs {
namespace {

template <typename T>
void write(io::FileWriter& writer, const std::vector<T>& values) {
  writer.write({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

template <typename T>
void read(const io::File& file, int64_t& offset, std::vector<T>& values, size_t count) {
  values.resize(count);
  const auto bytes = std::as_writable_bytes(std::span(values));
  file.read_exactly_at(offset, bytes);
  offset += static_cast<int64_t>(bytes.size());
}

}  // namespace

RowPlan::RowPlan(int64_t num_rows) : num_rows_(num_rows) {
  if (num_rows > 0) windows_.push_back({0, num_rows});
}

PlannedRow RowPlan::at(int64_t place) {
  TM_ASSERT(place >= 0 && place < num_rows_ && place >= windows_[current_].begin, "place {} of {}", place, num_rows_);
  while (place >= windows_[current_].end) open(current_ + 1);
  const Window& window = windows_[current_];
  if (order_.rows.empty()) return {.row = place};
  const auto i = static_cast<size_t>(place - window.begin);
  const uint32_t row = order_.rows[i];
  return {.row = window.begin + row,
          .position = {.offset = order_.offsets[row], .line = order_.lines[row]},
          .shared = order_.shared[i]};
}

void RowPlan::open(size_t window) {
  current_ = window;
  order_ = {};
  const auto count = static_cast<size_t>(windows_[window].end - windows_[window].begin);
  int64_t offset = windows_[window].file_offset;
  if (offset < 0) return;
  read(file_, offset, order_.rows, count);
  read(file_, offset, order_.shared, count);
  read(file_, offset, order_.offsets, count);
  read(file_, offset, order_.lines, count);
}

RowPlanner::RowPlanner(RowPlannerOptions options) : options_(std::move(options)) {
  TM_ASSERT(options_.max_rows >= 1 && options_.max_rows <= std::numeric_limits<uint32_t>::max() &&
            options_.max_fingerprints >= 1);
}

void RowPlanner::add(const io::RecordPosition& position, std::string_view prefix) {
  const Stopwatch stopwatch(seconds_);
  if (fingerprints_.num_rows() == 0) fingerprints_.reserve(options_.max_rows, options_.max_fingerprints);
  fingerprints_.add(prefix);
  const bool fits = position.line <= std::numeric_limits<uint32_t>::max();
  offsets_.push_back(fits ? position.offset : -1);
  lines_.push_back(fits ? static_cast<uint32_t>(position.line) : 0);
  if (fingerprints_.num_rows() >= options_.max_rows || fingerprints_.num_fingerprints() >= options_.max_fingerprints)
    close_window();
}

void RowPlanner::close_window() {
  PrefixOrder found = fingerprints_.order();
  const int64_t count = fingerprints_.num_rows();
  RowPlan::Window window{.begin = plan_.num_rows_, .end = plan_.num_rows_ + count};
  const bool keeps_order = std::is_sorted(found.rows.begin(), found.rows.end()) &&
                           std::all_of(found.shared.begin(), found.shared.end(), [](uint8_t n) { return n == 0; });
  if (!keeps_order)
    keep({std::move(found.rows), std::move(found.shared), std::move(offsets_), std::move(lines_)}, window);
  plan_.num_rows_ = window.end;
  plan_.windows_.push_back(window);
  fingerprints_.clear();
  offsets_ = {};
  lines_ = {};
}

/// The first window stays in memory: small jobs need no file.
void RowPlanner::keep(RowPlan::Order order, RowPlan::Window& window) {
  if (window.begin == 0) {
    plan_.order_ = std::move(order);
    return;
  }
  if (!spill_) spill_.emplace(io::File::create_new(options_.spill_path));
  window.file_offset = spill_->offset();
  write(*spill_, order.rows);
  write(*spill_, order.shared);
  write(*spill_, order.offsets);
  write(*spill_, order.lines);
}

RowPlan RowPlanner::finish() {
  const Stopwatch stopwatch(seconds_);
  if (fingerprints_.num_rows() > 0) close_window();
  fingerprints_ = {};
  if (spill_) {
    spill_->close();
    plan_.file_ = io::File::open_read(options_.spill_path);
  }
  return std::move(plan_);
}

}  // namespace tokenmill::jobs
