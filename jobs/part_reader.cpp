#include "jobs/part_reader.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

constexpr int kMaxOpenFiles = 256;                   // a process may often open 1,024 only
constexpr int64_t kMaxGapBytes = int64_t{16} << 10;  // between neighbours that are read together
constexpr int64_t kMaxRunBytes = int64_t{1} << 20;

}  // namespace

void PartReader::read(std::span<const RecordPlace> places) {
  starts_.assign(1, 0);
  for (const RecordPlace& place : places) starts_.push_back(starts_.back() + static_cast<size_t>(place.length));
  bytes_.resize(starts_.back());
  order_.resize(places.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return std::tuple(places[a].part, places[a].offset, a) < std::tuple(places[b].part, places[b].offset, b);
  });
  for (size_t begin = 0; begin < order_.size();) {
    const Run run = next_run(places, begin);
    read_run(places, run);
    begin = run.end;
  }
}

std::string_view PartReader::record(size_t i) const {
  TM_ASSERT(i + 1 < starts_.size());
  return {bytes_.data() + starts_[i], starts_[i + 1] - starts_[i]};
}

/// The records from order_[begin] on that one read serves: at least that one.
PartReader::Run PartReader::next_run(std::span<const RecordPlace> places, size_t begin) const {
  const RecordPlace& first = places[order_[begin]];
  Run run{begin, begin + 1, first.offset, first.length};
  for (; run.end < order_.size(); ++run.end) {
    const RecordPlace& place = places[order_[run.end]];
    const int64_t gap = place.offset - (run.offset + run.length);
    const int64_t length = std::max(run.length, place.offset + place.length - run.offset);
    if (place.part != first.part || gap > kMaxGapBytes || length > kMaxRunBytes) break;
    run.length = length;
  }
  return run;
}

void PartReader::read_run(std::span<const RecordPlace> places, const Run& run) {
  const size_t first = order_[run.begin];
  if (run.end == run.begin + 1) {
    read_bytes(places[first], run.offset, std::span(bytes_.data() + starts_[first], static_cast<size_t>(run.length)));
    return;
  }
  run_.resize(static_cast<size_t>(run.length));
  read_bytes(places[order_[run.end - 1]], run.offset, run_);
  for (size_t i = run.begin; i < run.end; ++i) {
    const RecordPlace& place = places[order_[i]];
    std::copy_n(run_.data() + (place.offset - run.offset), place.length, bytes_.data() + starts_[order_[i]]);
  }
}

void PartReader::read_bytes(const RecordPlace& last, int64_t offset, std::span<char> bytes) {
  const io::File& part = file(static_cast<size_t>(last.part));
  if (part.read_at(offset, std::as_writable_bytes(bytes)) == static_cast<int64_t>(bytes.size())) return;
  throw Error(ErrorKind::kIo, "{} ends at byte {}, but its ledger has a record at byte {} of {} bytes", part.path(),
              part.size(), last.offset, last.length);
}

const io::File& PartReader::file(size_t part) {
  if (files_[part].is_open()) return files_[part];
  if (num_open_ == kMaxOpenFiles) {
    for (io::File& file : files_) file = io::File();
    num_open_ = 0;
  }
  files_[part] = io::File::open_read(parts_[part].part);
  ++num_open_;
  return files_[part];
}

}  // namespace tokenmill::jobs
