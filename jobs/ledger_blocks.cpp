#include "jobs/ledger_blocks.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/check.h"

namespace tokenmill::jobs {
namespace {

constexpr int64_t kBlockEntries = 4096;

}  // namespace

LedgerBlocks::LedgerBlocks(const std::vector<PartPaths>& parts) {
  std::vector<LedgerEntry> entries;
  for (size_t part = 0; part < parts.size(); ++part) {
    const LedgerReader reader(parts[part].ledger);
    for (int64_t first = 0; first < reader.num_entries(); first += kBlockEntries) {
      entries.resize(static_cast<size_t>(std::min(kBlockEntries, reader.num_entries() - first)));
      reader.read(first, entries);
      const auto [low, high] = std::minmax_element(
          entries.begin(), entries.end(), [](const LedgerEntry& a, const LedgerEntry& b) { return a.row < b.row; });
      blocks_.push_back(
          {low->row, high->row, first, static_cast<int64_t>(entries.size()), static_cast<int64_t>(part)});
    }
  }
}

int64_t LedgerBlocks::lowest_row() const {
  int64_t low = 0;
  for (const Block& block : blocks_) low = std::min(low, block.low);
  return low;
}

int64_t LedgerBlocks::highest_row() const {
  int64_t high = -1;
  for (const Block& block : blocks_) high = std::max(high, block.high);
  return high;
}

std::string LedgerBlocks::serialize() const {
  return {reinterpret_cast<const char*>(blocks_.data()), blocks_.size() * sizeof(Block)};
}

LedgerBlocks LedgerBlocks::deserialize(const std::string& bytes) {
  TM_ASSERT(bytes.size() % sizeof(Block) == 0, "{} bytes are no blocks", bytes.size());
  LedgerBlocks out;
  out.blocks_.resize(bytes.size() / sizeof(Block));
  std::memcpy(out.blocks_.data(), bytes.data(), bytes.size());
  return out;
}

}  // namespace tokenmill::jobs
