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

RowRange LedgerBlocks::rows() const {
  if (blocks_.empty()) return {};
  RowRange rows{blocks_[0].low, blocks_[0].high + 1};
  for (const Block& block : blocks_) rows = {std::min(rows.begin, block.low), std::max(rows.end, block.high + 1)};
  return rows;
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
