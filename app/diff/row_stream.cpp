#include "app/diff/row_stream.h"

#include <fmt/format.h>

#include "app/rows/scan.h"
#include "io/json.h"
#include "io/utf8.h"
#include "kernels/core/check.h"
#include "kernels/core/error.h"

namespace tokenmill::diff {
namespace {

constexpr int64_t kMaxRowBytes = int64_t{1} << 30;

}  // namespace

RowStream::RowStream(const std::string& path) {
  if (io::is_hdf5_file(path) || !io::split_record_path(path).dataset.empty())
    throw Error(ErrorKind::kConfig,
                "{}: is an HDF5 file; diff compares output.jsonl: run with --output-format jsonl,hdf5 to have both (h5diff "
                "compares HDF5 files)",
                path);
  reader_ = io::open_records(path, {.max_record_bytes = kMaxRowBytes});
}

std::string RowStream::place(const ResultLine& line) const { return fmt::format("{}:{}", path(), line.line); }

bool RowStream::read_one() {
  io::Record record;
  if (!reader_->next(record)) return false;
  if (record.oversized)
    throw Error(ErrorKind::kInput, "{}:{}: a line of {} bytes is no result row; rows up to {} bytes can be compared",
                path(), record.line, record.length, kMaxRowBytes);
  entries_.push_back({{record.line, std::string(record.bytes)}, std::nullopt});
  held_bytes_ += record.length;
  return true;
}

const ResultLine* RowStream::head() {
  if (entries_.empty() && !read_one()) return nullptr;
  return &entries_.front().line;
}

const RowKey& RowStream::head_key() {
  TM_ASSERT(head() != nullptr);
  return index(0);
}

void RowStream::pop() {
  TM_ASSERT(!entries_.empty());
  const Entry& entry = entries_.front();
  if (num_indexed_ > 0) {
    auto [at, end] = positions_.equal_range(entry.key->id_json);
    while (at != end && at->second != popped_) ++at;
    TM_ASSERT(at != end);
    positions_.erase(at);
    --num_indexed_;
  }
  held_bytes_ -= static_cast<int64_t>(entry.line.bytes.size());
  entries_.pop_front();
  ++popped_;
}

std::optional<int64_t> RowStream::distance_to(const std::string& id_json) {
  look_ahead();
  std::optional<int64_t> nearest;
  const auto [begin, end] = positions_.equal_range(id_json);
  for (auto at = begin; at != end; ++at) {
    const int64_t distance = at->second - popped_;
    if (distance > 0 && (!nearest || distance < *nearest)) nearest = distance;
  }
  return nearest;
}

void RowStream::look_ahead() {
  while (entries_.size() < kMaxAheadRows && held_bytes_ < kMaxAheadBytes && read_one()) {
  }
  for (size_t i = num_indexed_; i < entries_.size(); ++i) index(i);
}

/// Keys become known from the front, so that pop() can tell which lines are in positions_.
const RowKey& RowStream::index(size_t position) {
  for (; num_indexed_ <= position; ++num_indexed_) {
    Entry& entry = entries_[num_indexed_];
    entry.key = key_of(entry.line);
    positions_.emplace(entry.key->id_json, popped_ + static_cast<int64_t>(num_indexed_));
  }
  return *entries_[position].key;
}

RowKey RowStream::key_of(const ResultLine& line) const {
  std::string_view id, row;
  rows::scan_members(line.bytes, [&](std::string_view name, std::string_view value) {
    if (name == "id" && id.empty()) id = value;
    if (name == "custom_id") id = value;
    if (name == "row") row = value;
    return true;
  });
  if (id.empty()) {
    const io::JsonValue json = io::parse_json(line.bytes, place(line));  // throws where it is no JSON
    if (json.is_object())
      throw Error(ErrorKind::kInput, "{}: no result row: it has neither id nor custom_id", place(line));
    throw Error(ErrorKind::kInput, "{}: no result row: found {}, expected an object", place(line),
                io::excerpt(io::to_json(json), 60));
  }
  RowKey key{.id_json = io::to_json(io::parse_json(id, place(line))), .row = {}};
  if (row.empty()) return key;
  if (const io::JsonValue number = io::parse_json(row, place(line)); number.is_number() && number.fits_int64())
    key.row = number.as_int64();
  return key;
}

}  // namespace tokenmill::diff
