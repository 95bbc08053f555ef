#include "engine/block_manager.h"

#include <algorithm>
#include <limits>

#include "kernels/core/check.h"

namespace tokenmill {

BlockManager::BlockManager(std::span<const KvSpec> groups, std::span<const int64_t> num_blocks) {
  TM_ASSERT(groups.size() == num_blocks.size(), "{} groups, {} pool sizes", groups.size(), num_blocks.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t n = num_blocks[g];
    TM_ASSERT(groups[g].block_size > 0 && n >= 0 && n <= std::numeric_limits<int32_t>::max(),
              "group {}: {} blocks of {} tokens", g, n, groups[g].block_size);
    Group group;
    group.block_size = groups[g].block_size;
    group.free.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) group.free[static_cast<size_t>(i)] = static_cast<int32_t>(n - 1 - i);
    group.num_references.assign(static_cast<size_t>(n), 0);
    group.used_before.assign(static_cast<size_t>(n), false);
    groups_.push_back(std::move(group));
    num_total_blocks_ += n;
  }
}

int64_t BlockManager::num_blocks(int group) const {
  return static_cast<int64_t>(groups_[static_cast<size_t>(group)].num_references.size());
}

int64_t BlockManager::num_free_blocks(int group) const {
  return static_cast<int64_t>(groups_[static_cast<size_t>(group)].free.size());
}

int64_t BlockManager::num_blocks_for(int group, int64_t num_tokens) const {
  const int64_t block_size = groups_[static_cast<size_t>(group)].block_size;
  return (num_tokens + block_size - 1) / block_size;
}

bool BlockManager::grow(BlockTables& tables, int64_t num_tokens, BlockTables& appended, BlockTables& fresh) {
  TM_ASSERT(tables.size() == groups_.size() && appended.size() == groups_.size() && fresh.size() == groups_.size());
  for (int g = 0; g < num_groups(); ++g) {
    const auto held = static_cast<int64_t>(tables[static_cast<size_t>(g)].size());
    if (num_blocks_for(g, num_tokens) - held > num_free_blocks(g)) return false;
  }
  for (int g = 0; g < num_groups(); ++g) {
    Group& group = groups_[static_cast<size_t>(g)];
    std::vector<int32_t>& table = tables[static_cast<size_t>(g)];
    const int64_t missing = num_blocks_for(g, num_tokens) - static_cast<int64_t>(table.size());
    for (int64_t i = 0; i < missing; ++i) {
      const int32_t id = group.free.back();
      group.free.pop_back();
      const auto at = static_cast<size_t>(id);
      TM_ASSERT(group.num_references[at] == 0, "block {} of group {} is free and has {} users", id, g,
                group.num_references[at]);
      group.num_references[at] = 1;
      if (group.used_before[at]) fresh[static_cast<size_t>(g)].push_back(id);
      group.used_before[at] = true;
      table.push_back(id);
      appended[static_cast<size_t>(g)].push_back(id);
      ++num_used_blocks_;
    }
  }
  return true;
}

void BlockManager::release(BlockTables& tables) {
  TM_ASSERT(tables.size() == groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    for (auto id = tables[g].rbegin(); id != tables[g].rend(); ++id) {
      int32_t& references = group.num_references[static_cast<size_t>(*id)];
      TM_ASSERT(references > 0, "block {} of group {} is released and has no user", *id, g);
      if (--references == 0) {
        group.free.push_back(*id);
        --num_used_blocks_;
      }
    }
    tables[g].clear();
  }
}

}  // namespace tokenmill
