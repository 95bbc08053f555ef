#include "jobs/merge.h"

#include <algorithm>
#include <list>
#include <optional>
#include <unordered_map>

#include "io/file.h"
#include "jobs/journal/ledger.h"
#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

constexpr int64_t kBlockEntries = 4096;  // of a ledger
constexpr int kMaxOpenFiles = 256;       // a process may often open 1,024 only

/// The ledgers of all parts, with the range of rows in every block: rows finish nearly in order, so a window of rows
/// touches few blocks.
class Ledgers {
 public:
  explicit Ledgers(const std::vector<PartPaths>& parts) : parts_(parts) {
    std::vector<LedgerEntry> entries;
    for (size_t part = 0; part < parts.size(); ++part) {
      const LedgerReader reader(parts[part].ledger);
      if (reader.torn_bytes() > 0)
        throw Error(ErrorKind::kIo, "{}: the last {} bytes are torn; the run that wrote it did not finish",
                    reader.path(), reader.torn_bytes());
      for (int64_t first = 0; first < reader.num_entries(); first += kBlockEntries) {
        entries.resize(static_cast<size_t>(std::min(kBlockEntries, reader.num_entries() - first)));
        reader.read(first, entries);
        const auto [low, high] = std::minmax_element(
            entries.begin(), entries.end(), [](const LedgerEntry& a, const LedgerEntry& b) { return a.row < b.row; });
        blocks_.push_back({low->row, high->row, first, static_cast<int64_t>(entries.size()), part});
      }
    }
  }

  /// Calls use(part, entry) for the entries of rows [begin, end), in no order.
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

/// Part files behind a cache of blocks, the least recently used one replaced: records lie nearly in row order, a few
/// blocks per part are in use at a time.
class PartReader {
 public:
  PartReader(const std::vector<PartPaths>& parts, int64_t cache_bytes) : parts_(parts), files_(parts.size()) {
    const auto count = static_cast<int64_t>(std::max<size_t>(parts.size(), 1));
    block_bytes_ = std::clamp<int64_t>(cache_bytes / (count * 4), int64_t{16} << 10, int64_t{1} << 20);
    max_blocks_ = static_cast<size_t>(std::max<int64_t>(cache_bytes / block_bytes_, 2));
  }

  /// out holds the bytes [offset, offset + length) of the part then.
  void read(size_t part, int64_t offset, int64_t length, std::string& out) {
    out.resize(static_cast<size_t>(length));
    if (length >= block_bytes_) {
      file(part).read_exactly_at(offset, std::as_writable_bytes(std::span(out)));
      return;
    }
    for (int64_t done = 0; done < length;) {
      const int64_t at = offset + done;
      const std::string& bytes = block(part, at / block_bytes_);
      const int64_t within = at % block_bytes_;
      const int64_t count = std::min(length - done, static_cast<int64_t>(bytes.size()) - within);
      if (count <= 0)
        throw Error(ErrorKind::kIo, "{} ends at byte {}, but its ledger has a record at byte {} of {} bytes",
                    parts_[part].part, file(part).size(), offset, length);
      std::copy_n(bytes.data() + within, count, out.data() + done);
      done += count;
    }
  }

 private:
  struct Block {
    uint64_t key;
    std::string bytes;
  };
  const io::File& file(size_t part) {
    if (!files_[part].is_open()) {
      if (num_open_ == kMaxOpenFiles) {
        for (io::File& file : files_) file = io::File();
        num_open_ = 0;
      }
      files_[part] = io::File::open_read(parts_[part].part);
      ++num_open_;
    }
    return files_[part];
  }
  const std::string& block(size_t part, int64_t index) {
    const uint64_t key = static_cast<uint64_t>(part) << 44 | static_cast<uint64_t>(index);
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      blocks_.splice(blocks_.begin(), blocks_, found->second);
      return blocks_.front().bytes;
    }
    if (blocks_.size() < max_blocks_) {
      blocks_.emplace_front();
    } else {
      by_key_.erase(blocks_.back().key);
      blocks_.splice(blocks_.begin(), blocks_, std::prev(blocks_.end()));
    }
    Block& fresh = blocks_.front();
    fresh.key = key;
    fresh.bytes.resize(static_cast<size_t>(block_bytes_));
    const int64_t n = file(part).read_at(index * block_bytes_, std::as_writable_bytes(std::span(fresh.bytes)));
    fresh.bytes.resize(static_cast<size_t>(n));
    by_key_[key] = blocks_.begin();
    return fresh.bytes;
  }

  const std::vector<PartPaths>& parts_;
  std::vector<io::File> files_;  // opened when first read
  int num_open_ = 0;
  int64_t block_bytes_ = 0;
  size_t max_blocks_ = 0;
  std::list<Block> blocks_;  // most recently used first
  std::unordered_map<uint64_t, std::list<Block>::iterator> by_key_;
};

/// Where one row's record lies. part -1: not seen yet.
struct Slot {
  int64_t offset = 0, length = 0;
  uint64_t record_digest = 0;
  int32_t part = -1;
  bool failed = false;
};

class Merge {
 public:
  Merge(const std::vector<PartPaths>& parts, const std::string& output_path, const MergeOptions& options)
      : parts_(parts), ledgers_(parts), reader_(parts, options.cache_bytes), output_(output_path), options_(options) {}

  MergeTotals run(int64_t num_rows) {
    TM_ASSERT(ledgers_.lowest_row() >= 0 && ledgers_.highest_row() < num_rows,
              "the ledgers have rows {} to {}, the job has rows 0 to {}", ledgers_.lowest_row(), ledgers_.highest_row(),
              num_rows - 1);
    for (int64_t begin = 0; begin < num_rows; begin += options_.window_rows) {
      const int64_t end = std::min(num_rows, begin + options_.window_rows);
      collect(begin, end);
      for (int64_t row = begin; row < end; ++row) copy(row, slots_[static_cast<size_t>(row - begin)]);
    }
    totals_.bytes = output_.offset();
    output_.commit();
    return totals_;
  }

 private:
  void collect(int64_t begin, int64_t end) {
    slots_.assign(static_cast<size_t>(end - begin), Slot{});
    ledgers_.for_rows(begin, end, [&](size_t part, const LedgerEntry& entry) {
      Slot& slot = slots_[static_cast<size_t>(entry.row - begin)];
      TM_ASSERT(slot.part < 0, "row {} was written twice, in {} and {}", entry.row,
                parts_[static_cast<size_t>(std::max(slot.part, 0))].part, parts_[part].part);
      slot = {.offset = entry.offset,
              .length = entry.length,
              .record_digest = entry.record_digest,
              .part = static_cast<int32_t>(part),
              .failed = entry.failed};
    });
  }

  void copy(int64_t row, const Slot& slot) {
    TM_ASSERT(slot.part >= 0, "row {} has no result in any part", row);
    const auto part = static_cast<size_t>(slot.part);
    reader_.read(part, slot.offset, slot.length, record_);
    if (digest(record_) != slot.record_digest)
      throw Error(ErrorKind::kIo,
                  "{}: the record of row {} (byte {}, {} bytes) is damaged: its checksum is not the "
                  "ledger's",
                  parts_[part].part, row, slot.offset, slot.length);
    output_.write(record_);
    ++totals_.rows;
    totals_.failed += slot.failed ? 1 : 0;
  }

  const std::vector<PartPaths>& parts_;
  Ledgers ledgers_;
  PartReader reader_;
  io::AtomicFile output_;
  const MergeOptions options_;
  std::vector<Slot> slots_;
  std::string record_;
  MergeTotals totals_;
};

}  // namespace

MergeTotals merge_parts(const std::vector<PartPaths>& parts, int64_t num_rows, const std::string& output_path,
                        const MergeOptions& options) {
  return Merge(parts, output_path, options).run(num_rows);
}

}  // namespace tokenmill::jobs
