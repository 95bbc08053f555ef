#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "jobs/index.h"
#include "jobs/journal/ledger.h"
#include "jobs/journal/parts.h"

namespace tokenmill::jobs {

/// The range of rows in every block of 4,096 entries of all ledgers: rows are planned in windows, so a window of rows
/// touches a part of the blocks only. 40 bytes a block. Made once by reading all ledgers; other ranks get its bytes.
class LedgerBlocks {
 public:
  LedgerBlocks() = default;
  /// Throws Error(kIo) naming a ledger that is damaged.
  explicit LedgerBlocks(const std::vector<PartPaths>& parts);

  /// Calls use(part, entry) for the entries of rows [begin, end), by part, then by entry. parts: those of the constructor.
  template <typename Use>
  void for_rows(const std::vector<PartPaths>& parts, int64_t begin, int64_t end, Use&& use) const {
    std::vector<LedgerEntry> entries;
    std::optional<LedgerReader> reader;  // one open file, however many parts there are
    int64_t open_part = 0;
    for (const Block& block : blocks_) {
      if (block.high < begin || block.low >= end) continue;
      const PartPaths& paths = parts[static_cast<size_t>(block.part)];
      if (!reader || open_part != block.part) reader.emplace(paths.ledger);
      open_part = block.part;
      entries.resize(static_cast<size_t>(block.size));
      reader->read(block.first, entries);
      for (const LedgerEntry& entry : entries)
        if (entry.row >= begin && entry.row < end) use(static_cast<size_t>(block.part), entry);
    }
  }
  /// From the lowest row of all entries to the highest; empty: there are no entries.
  RowRange rows() const;

  std::string serialize() const;
  /// Throws Error(kInternal) when the bytes are no blocks.
  static LedgerBlocks deserialize(const std::string& bytes);

 private:
  struct Block {
    int64_t low, high;  // rows
    int64_t first, size;
    int64_t part;
  };
  std::vector<Block> blocks_;
};

}  // namespace tokenmill::jobs
