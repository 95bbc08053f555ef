#include "jobs/row_merge.h"

#include <algorithm>

#include "jobs/journal/advice.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {

void check_rows(const LedgerBlocks& blocks, RowRange rows) {
  const RowRange found = blocks.rows();
  TM_ASSERT(found.size() == 0 || (found.begin >= rows.begin && found.end <= rows.end),
            "the ledgers have rows {} to {}, the job has rows {} to {}", found.begin, found.end - 1, rows.begin,
            rows.end - 1);
}

int64_t RowMerge::bytes_of(int64_t begin, int64_t end) {
  int64_t bytes = 0;
  for (int64_t window = begin; window < end; window += options_.window_rows) {
    collect(window, std::min(end, window + options_.window_rows));
    for (const Slot& slot : slots_) bytes += slot.place.length;
  }
  return bytes;
}

void RowMerge::copy(int64_t begin, int64_t end) {
  for (int64_t window = begin; window < end; window += options_.window_rows) {
    const int64_t window_end = std::min(end, window + options_.window_rows);
    collect(window, window_end);
    for (int64_t row = window; row < window_end;) row = copy_some(window, row, window_end);
  }
}

void RowMerge::collect(int64_t begin, int64_t end) {
  slots_.assign(static_cast<size_t>(end - begin), Slot{});
  blocks_.for_rows(parts_, begin, end, [&](size_t part, const LedgerEntry& entry) {
    Slot& slot = slots_[static_cast<size_t>(entry.row - begin)];
    if (entry.partial) return;
    const PartPaths* earlier = slot.place.part < 0 ? nullptr : &parts_[static_cast<size_t>(slot.place.part)];
    TM_ASSERT(earlier == nullptr || earlier->run < parts_[part].run, "row {} was written twice, in {} and {}",
              entry.row, earlier->part, parts_[part].part);
    slot = {.place = {static_cast<int32_t>(part), entry.offset, entry.length},
            .record_digest = entry.record_digest,
            .failed = entry.failed};
  });
}

/// Copies rows from `row` on, as many as batch_bytes hold and at least one; returns the next one.
int64_t RowMerge::copy_some(int64_t window_begin, int64_t row, int64_t window_end) {
  places_.clear();
  rows_.clear();
  const int64_t first = row;
  for (int64_t bytes = 0; row < window_end; ++row) {
    const Slot& slot = slots_[static_cast<size_t>(row - window_begin)];
    if (slot.place.part < 0) {
      TM_ASSERT(options_.allow_missing, "row {} has no result in any part", row);
      continue;
    }
    bytes += slot.place.length;
    if (bytes > options_.batch_bytes && row > first) break;
    places_.push_back(slot.place);
    rows_.push_back(row);
  }
  if (options_.activity != nullptr) options_.activity->progress(first);
  reader_.read(places_);
  for (size_t i = 0; i < places_.size(); ++i)
    copy_record(rows_[i], slots_[static_cast<size_t>(rows_[i] - window_begin)], reader_.record(i));
  return row;
}

void RowMerge::copy_record(int64_t row, const Slot& slot, std::string_view record) {
  if (digest(record) != slot.record_digest)
    throw Error(ErrorKind::kIo,
                "{}: the record of row {} (byte {}, {} bytes) is damaged: its checksum is not the "
                "ledger's",
                parts_[static_cast<size_t>(slot.place.part)].part, row, slot.place.offset, slot.place.length);
  const size_t line_bytes = record.find('\n') + 1;  // what an attachment is made of does not matter
  with_advice([&] {
    for (const auto& output : outputs_) output->write(row, record.substr(0, line_bytes), record.substr(line_bytes));
  });
  totals_.bytes += static_cast<int64_t>(record.size());
  ++totals_.rows;
  totals_.failed += slot.failed ? 1 : 0;
}

}  // namespace tokenmill::jobs
