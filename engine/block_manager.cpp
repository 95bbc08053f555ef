#include "engine/block_manager.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/core/check.h"

namespace tokenmill {
BlockManager::BlockManager(std::span<const KvSpec> groups, std::span<const int64_t> num_blocks,
                           bool enable_prefix_caching, PrefixTree::HashFunction hash)
    : specs_(groups.begin(), groups.end()) {
  TM_ASSERT(groups.size() == num_blocks.size(), "{} groups, {} pool sizes", groups.size(), num_blocks.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t n = num_blocks[g], block_size = groups[g].block_size;
    TM_ASSERT(block_size > 0 && n >= 0 && n <= std::numeric_limits<int32_t>::max(), "group {}: {} blocks of {} tokens",
              g, n, block_size);
    pools_.emplace_back(n);
    alignment_ = std::lcm(alignment_, block_size);
    if (!enable_prefix_caching) continue;
    const auto same = std::find_if(trees_.begin(), trees_.end(),
                                   [&](const PrefixTree& tree) { return tree.block_size() == block_size; });
    tree_of_group_.push_back(static_cast<size_t>(same - trees_.begin()));
    if (same == trees_.end()) trees_.emplace_back(block_size, static_cast<int>(groups.size()), hash);
  }
}

int64_t BlockManager::num_blocks_for(int group, int64_t num_tokens) const {
  return specs_[static_cast<size_t>(group)].num_blocks_for(num_tokens);
}

int64_t BlockManager::num_live_blocks_for(int group, int64_t num_tokens, int64_t chunk) const {
  return specs_[static_cast<size_t>(group)].num_live_blocks_for(num_tokens, chunk);
}

int64_t BlockManager::num_used_blocks() const {
  int64_t sum = 0;
  for (const BlockPool& pool : pools_) sum += pool.num_blocks() - pool.num_free();
  return sum;
}

int64_t BlockManager::num_total_blocks() const {
  int64_t sum = 0;
  for (const BlockPool& pool : pools_) sum += pool.num_blocks();
  return sum;
}

int64_t BlockManager::num_shared_blocks() const {
  int64_t sum = 0;
  for (const BlockPool& pool : pools_) sum += pool.num_references() - pool.num_referenced();
  return sum;
}

int64_t BlockManager::num_allocated_slots() const {
  int64_t sum = 0;
  for (size_t g = 0; g < pools_.size(); ++g) sum += pools_[g].num_referenced() * specs_[g].block_size;
  return sum;
}

int32_t BlockManager::take_block(size_t group, BlockTables& fresh) {
  const BlockPool::Taken taken = pools_[group].take();
  if (taken.evicted != nullptr) {
    taken.evicted->cached[group] = kNullBlock;
    --taken.evicted->num_cached;
    trees_[tree_of_group_[group]].prune(taken.evicted);
  }
  if (taken.recycled) fresh[group].push_back(taken.id);
  return taken.id;
}

void BlockManager::drop_reference(size_t group, int32_t id, uint64_t last_step) {
  if (last_step > collected_step_) {
    pools_[group].pin(id);
    pinned_[last_step].emplace_back(group, id);
  }
  pools_[group].release(id);
}

void BlockManager::collected(uint64_t step_id) {
  collected_step_ = step_id;
  while (!pinned_.empty() && pinned_.begin()->first <= step_id) {
    for (const auto& [group, id] : pinned_.begin()->second) pools_[group].unpin(id);
    pinned_.erase(pinned_.begin());
  }
}

int64_t BlockManager::num_tokens_that_fit(const SequenceBlocks& blocks, int64_t start) const {
  int64_t end = std::numeric_limits<int64_t>::max();
  for (size_t g = 0; g < pools_.size(); ++g) {
    const auto held = static_cast<int64_t>(blocks.tables[g].size());
    end = std::min(end, (held + pools_[g].num_free()) * specs_[g].block_size);
  }
  return end - start;
}

int64_t BlockManager::num_tokens_that_fit(const PrefixHit& hit) const {
  int64_t end = std::numeric_limits<int64_t>::max();
  for (size_t g = 0; g < pools_.size(); ++g) {
    const auto held = static_cast<int64_t>(hit.tables[g].size());
    const int64_t left = pools_[g].num_free() - num_free_blocks_used(static_cast<int>(g), hit);
    if (left < 0) return 0;
    end = std::min(end, (held + left) * specs_[g].block_size);
  }
  return end - hit.num_tokens;
}

bool BlockManager::will_have_more(const SequenceBlocks& blocks, int64_t start, int64_t num_tokens) const {
  for (size_t g = 0; g < pools_.size(); ++g) {
    const int64_t missing =
        num_blocks_for(static_cast<int>(g), start + num_tokens) - static_cast<int64_t>(blocks.tables[g].size());
    if (missing > pools_[g].num_free() && pools_[g].num_pinned() > 0) return true;
  }
  return false;
}

bool BlockManager::grow(SequenceBlocks& blocks, int64_t num_tokens, BlockTables& appended, BlockTables& fresh) {
  TM_ASSERT(blocks.tables.size() == pools_.size() && appended.size() == pools_.size() && fresh.size() == pools_.size());
  if (num_tokens_that_fit(blocks, 0) < num_tokens) return false;
  for (size_t g = 0; g < pools_.size(); ++g) {
    std::vector<int32_t>& table = blocks.tables[g];
    const int64_t missing = num_blocks_for(static_cast<int>(g), num_tokens) - static_cast<int64_t>(table.size());
    for (int64_t i = 0; i < missing; ++i) {
      table.push_back(take_block(g, fresh));
      appended[g].push_back(table.back());
    }
  }
  return true;
}

bool BlockManager::leave_window(SequenceBlocks& blocks, int64_t start, uint64_t last_step) {
  bool changed = false;
  for (size_t g = 0; g < pools_.size(); ++g) {
    std::vector<int32_t>& table = blocks.tables[g];
    const int64_t first =
        std::min(specs_[g].first_visible(start) / specs_[g].block_size, static_cast<int64_t>(table.size()));
    for (int64_t i = first - 1; i >= blocks.first_kept[g]; --i) {
      drop_reference(g, table[static_cast<size_t>(i)], last_step);
      table[static_cast<size_t>(i)] = kNullBlock;
    }
    changed = changed || first > blocks.first_kept[g];
    blocks.first_kept[g] = std::max(blocks.first_kept[g], first);
  }
  return changed;
}

bool BlockManager::rewind(SequenceBlocks& blocks, int64_t num_known, int64_t num_computed) {
  for (size_t g = 0; g < pools_.size(); ++g) {
    const int64_t block_size = specs_[g].block_size;
    if (specs_[g].first_visible(num_computed) / block_size < blocks.first_kept[g]) return false;
    for (size_t i = static_cast<size_t>(num_computed / block_size); i < blocks.tables[g].size(); ++i) {
      if (pools_[g].references(blocks.tables[g][i]) > 1) return false;
    }
  }
  for (size_t g = 0; g < pools_.size(); ++g) {
    for (size_t i = static_cast<size_t>(num_computed / specs_[g].block_size); i < blocks.tables[g].size(); ++i) {
      uncache(g, blocks.tables[g][i]);
    }
  }
  for (size_t t = 0; t < blocks.prefixes.size(); ++t) {
    SequenceBlocks::Prefix& prefix = blocks.prefixes[t];
    shorten_path(prefix, trees_[t], num_known / trees_[t].block_size());
    const int64_t num_registered = std::min(prefix.num_registered, num_computed / trees_[t].block_size());
    if (num_registered == prefix.num_registered) continue;
    drop_claims(prefix, prefix.num_registered);
    prefix.num_registered = prefix.num_claimed = num_registered;
  }
  return true;
}

void BlockManager::release(SequenceBlocks& blocks, uint64_t last_step) {
  for (size_t g = 0; g < pools_.size(); ++g) {
    std::vector<int32_t>& table = blocks.tables[g];
    for (auto id = table.rbegin(); id != table.rend() && *id != kNullBlock; ++id) drop_reference(g, *id, last_step);
    table.clear();
    blocks.first_kept[g] = 0;
  }
  for (SequenceBlocks::Prefix& prefix : blocks.prefixes) {
    drop_claims(prefix, prefix.num_registered);
    prefix.num_registered = prefix.num_claimed = 0;
  }
}

void BlockManager::audit(std::span<const SequenceBlocks* const> running, bool nobody_waits) const {
  std::map<const PrefixNode*, PrefixNode> counted;  // holders and computing only
  for (const SequenceBlocks* blocks : running) {
    for (const SequenceBlocks::Prefix& prefix : blocks->prefixes) {
      for (size_t i = 0; i < prefix.path.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        PrefixNode& count = counted[prefix.path[i]];
        ++count.num_holders;
        count.num_computing += at >= prefix.num_registered && at < prefix.num_claimed ? 1 : 0;
      }
    }
  }
  for (const PrefixTree& tree : trees_) {
    tree.audit([&](const PrefixNode& node) {
      const PrefixNode& count = counted[&node];
      TM_ASSERT(node.num_computing == count.num_computing, "{} sequences compute a prefix, {} counted",
                node.num_computing, count.num_computing);
      TM_ASSERT(nobody_waits ? node.num_holders == count.num_holders && node.num_waiting == 0
                             : node.num_holders >= count.num_holders,
                "a prefix has {} holders, {} counted, {} of them waiting", node.num_holders, count.num_holders,
                node.num_waiting);
      for (size_t g = 0; g < node.cached.size(); ++g) {
        TM_ASSERT(node.cached[g] == kNullBlock || pools_[g].node(node.cached[g]) == &node,
                  "block {} of group {} does not hold the prefix that names it", node.cached[g], g);
      }
    });
  }
  for (size_t g = 0; g < pools_.size(); ++g) {
    std::vector<int32_t> references(static_cast<size_t>(pools_[g].num_blocks()), 0);
    for (const SequenceBlocks* blocks : running) {
      for (const int32_t id : blocks->tables[g]) {
        if (id != kNullBlock) ++references[static_cast<size_t>(id)];
      }
    }
    pools_[g].audit(references);
    for (int32_t id = 0; id < pools_[g].num_blocks(); ++id) {
      const PrefixNode* node = pools_[g].node(id);
      TM_ASSERT(node == nullptr || node->cached[g] == id, "block {} of group {} is not what its prefix names", id, g);
    }
  }
}

}  // namespace tokenmill
