#include "jobs/merge.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "jobs/journal/advice.h"
#include "jobs/journal/ledger.h"
#include "jobs/part_reader.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

constexpr int64_t kBlockEntries = 4096;  // of a ledger

/// The ledgers of all parts, with the range of rows in every block: rows are planned in windows, so a window of rows
/// touches a part of the blocks only.
class Ledgers {
 public:
  explicit Ledgers(const std::vector<PartPaths>& parts) : parts_(parts) {
    std::vector<LedgerEntry> entries;
    for (size_t part = 0; part < parts.size(); ++part) {
      const LedgerReader reader(parts[part].ledger);
      for (int64_t first = 0; first < reader.num_entries(); first += kBlockEntries) {
        entries.resize(static_cast<size_t>(std::min(kBlockEntries, reader.num_entries() - first)));
        reader.read(first, entries);
        const auto [low, high] = std::minmax_element(
            entries.begin(), entries.end(), [](const LedgerEntry& a, const LedgerEntry& b) { return a.row < b.row; });
        blocks_.push_back({low->row, high->row, first, static_cast<int64_t>(entries.size()), part});
      }
    }
  }

  /// Calls use(part, entry) for the entries of rows [begin, end), by part, then by entry.
  template <typename Use>
  void for_rows(int64_t begin, int64_t end, Use&& use) const {
    std::vector<LedgerEntry> entries;
    std::optional<LedgerReader> reader;  // one open file, however many parts there are
    size_t open_part = 0;
    for (const Block& block : blocks_) {
      if (block.high < begin || block.low >= end) continue;
      if (!reader || open_part != block.part) reader.emplace(parts_[block.part].ledger);
      open_part = block.part;
      entries.resize(static_cast<size_t>(block.size));
      reader->read(block.first, entries);
      for (const LedgerEntry& entry : entries)
        if (entry.row >= begin && entry.row < end) use(block.part, entry);
    }
  }
  int64_t lowest_row() const {
    int64_t low = 0;
    for (const Block& block : blocks_) low = std::min(low, block.low);
    return low;
  }
  int64_t highest_row() const {
    int64_t high = -1;
    for (const Block& block : blocks_) high = std::max(high, block.high);
    return high;
  }

 private:
  struct Block {
    int64_t low, high;  // rows
    int64_t first, size;
    size_t part;
  };
  const std::vector<PartPaths>& parts_;
  std::vector<Block> blocks_;
};

/// What the ledgers say of a row. place.part -1: nothing yet.
struct Slot {
  RecordPlace place;
  uint64_t record_digest = 0;
  bool failed = false;
};

class Merge {
 public:
  Merge(const std::vector<PartPaths>& parts, const MergeOutputs& outputs, const MergeOptions& options)
      : parts_(parts), ledgers_(parts), reader_(parts), outputs_(outputs), options_(options) {}

  MergeTotals run(int64_t num_rows) {
    TM_ASSERT(ledgers_.lowest_row() >= 0 && ledgers_.highest_row() < num_rows,
              "the ledgers have rows {} to {}, the job has rows 0 to {}", ledgers_.lowest_row(), ledgers_.highest_row(),
              num_rows - 1);
    for (int64_t begin = 0; begin < num_rows; begin += options_.window_rows) {
      const int64_t end = std::min(num_rows, begin + options_.window_rows);
      collect(begin, end);
      for (int64_t row = begin; row < end;) row = copy_some(begin, row, end);
    }
    return totals_;
  }

 private:
  void collect(int64_t begin, int64_t end) {
    slots_.assign(static_cast<size_t>(end - begin), Slot{});
    ledgers_.for_rows(begin, end, [&](size_t part, const LedgerEntry& entry) {
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
  int64_t copy_some(int64_t window_begin, int64_t row, int64_t window_end) {
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
    reader_.read(places_);
    for (size_t i = 0; i < places_.size(); ++i)
      copy(rows_[i], slots_[static_cast<size_t>(rows_[i] - window_begin)], reader_.record(i));
    return row;
  }

  void copy(int64_t row, const Slot& slot, std::string_view record) {
    if (digest(record) != slot.record_digest)
      throw Error(ErrorKind::kIo,
                  "{}: the record of row {} (byte {}, {} bytes) is damaged: its checksum is not the "
                  "ledger's",
                  parts_[static_cast<size_t>(slot.place.part)].part, row, slot.place.offset, slot.place.length);
    with_advice([&] {
      for (const auto& output : outputs_) output->write(row, record);
    });
    totals_.bytes += static_cast<int64_t>(record.size());
    ++totals_.rows;
    totals_.failed += slot.failed ? 1 : 0;
  }

  const std::vector<PartPaths>& parts_;
  Ledgers ledgers_;
  PartReader reader_;
  const MergeOutputs& outputs_;
  const MergeOptions options_;
  std::vector<Slot> slots_;
  std::vector<RecordPlace> places_;  // scratch, as rows_
  std::vector<int64_t> rows_;
  MergeTotals totals_;
};

}  // namespace

MergeTotals append_parts(const std::vector<PartPaths>& parts, int64_t num_rows, const MergeOutputs& outputs,
                         const MergeOptions& options) {
  return Merge(parts, outputs, options).run(num_rows);
}

MergeTotals merge_parts(const std::vector<PartPaths>& parts, int64_t num_rows, const MergeOutputs& outputs,
                        const MergeOptions& options) {
  const MergeTotals totals = append_parts(parts, num_rows, outputs, options);
  with_advice([&] {
    for (const auto& output : outputs) output->commit();
  });
  return totals;
}

MergeTotals merge_parts(const std::vector<PartPaths>& parts, int64_t num_rows, const std::string& output_path,
                        const MergeOptions& options) {
  MergeOutputs outputs;
  with_advice([&] { outputs.push_back(std::make_unique<io::LineWriter>(output_path)); });
  return merge_parts(parts, num_rows, outputs, options);
}

}  // namespace tokenmill::jobs
