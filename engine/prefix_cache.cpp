// The prefix half of BlockManager: what is cached, who will use it, what a sequence can hit.
#include <algorithm>

#include "engine/block_manager.h"
#include "kernels/core/check.h"

namespace tokenmill {

void BlockManager::follow(SequenceBlocks& blocks, const CacheIdentity& identity, std::span<const int32_t> token_ids) {
  blocks.prefixes.resize(trees_.size());
  for (size_t t = 0; t < trees_.size(); ++t) {
    PrefixTree& tree = trees_[t];
    SequenceBlocks::Prefix& prefix = blocks.prefixes[t];
    const auto block_size = static_cast<size_t>(tree.block_size());
    while (!prefix.closed && (prefix.path.size() + 1) * block_size <= token_ids.size()) {
      PrefixNode* parent = prefix.path.empty() ? tree.root(identity) : prefix.path.back();
      PrefixNode* node = parent == nullptr
                             ? nullptr
                             : tree.child(*parent, token_ids.subspan(prefix.path.size() * block_size, block_size));
      if (node == nullptr) {
        prefix.closed = true;
        if (prefix.path.empty()) tree.prune(parent);
        break;
      }
      ++node->num_holders;
      prefix.path.push_back(node);
      TM_ASSERT(!blocks.waiting, "the tokens of a waiting sequence do not change");
    }
  }
}

void BlockManager::count_waiting(SequenceBlocks& blocks, int32_t by) {
  for (SequenceBlocks::Prefix& prefix : blocks.prefixes) {
    for (auto at = prefix.path.rbegin(); at != prefix.path.rend(); ++at) {  // the last block is evicted first
      PrefixNode* node = *at;
      const bool was_wanted = node->num_waiting > 0;
      node->num_waiting += by;
      if (was_wanted == (node->num_waiting > 0) || node->num_cached == 0) continue;
      for (size_t g = 0; g < pools_.size(); ++g) {
        if (node->cached[g] != kNullBlock) pools_[g].refresh_order(node->cached[g]);
      }
    }
  }
}

void BlockManager::announce(SequenceBlocks& blocks) {
  TM_ASSERT(!blocks.waiting);
  blocks.waiting = true;
  count_waiting(blocks, 1);
}

void BlockManager::withdraw(SequenceBlocks& blocks) {
  if (!blocks.waiting) return;
  blocks.waiting = false;
  count_waiting(blocks, -1);
}

void BlockManager::drop_claims(SequenceBlocks::Prefix& prefix, int64_t from) {
  for (int64_t i = from; i < prefix.num_claimed; ++i) --prefix.path[static_cast<size_t>(i)]->num_computing;
}

void BlockManager::shorten_path(SequenceBlocks::Prefix& prefix, PrefixTree& tree, int64_t size) {
  if (size >= static_cast<int64_t>(prefix.path.size())) return;
  drop_claims(prefix, std::max(size, prefix.num_registered));
  prefix.num_claimed = std::min(prefix.num_claimed, size);
  while (static_cast<int64_t>(prefix.path.size()) > size) {
    PrefixNode* node = prefix.path.back();
    prefix.path.pop_back();
    --node->num_holders;
    tree.prune(node);
  }
  prefix.closed = false;
}

void BlockManager::leave(SequenceBlocks& blocks) {
  withdraw(blocks);
  for (size_t t = 0; t < blocks.prefixes.size(); ++t) shorten_path(blocks.prefixes[t], trees_[t], 0);
  blocks.prefixes.clear();
}

void BlockManager::uncache(size_t group, int32_t id) {
  PrefixNode* node = pools_[group].node(id);
  if (node == nullptr) return;
  pools_[group].uncache(id);
  node->cached[group] = kNullBlock;
  --node->num_cached;
  trees_[tree_of_group_[group]].prune(node);
}

void BlockManager::forget(const SequenceBlocks& blocks) {
  for (const SequenceBlocks::Prefix& prefix : blocks.prefixes) {
    for (const PrefixNode* node : prefix.path) {
      for (size_t g = 0; g < pools_.size(); ++g) {
        if (node->cached[g] != kNullBlock) uncache(g, node->cached[g]);
      }
    }
  }
}

// The last block that the group lacks to go on at position num_tokens, or -1.
int64_t BlockManager::last_missing(size_t group, const SequenceBlocks& blocks, int64_t num_tokens,
                                   uint64_t step_id) const {
  const int64_t block_size = specs_[group].block_size;
  const std::vector<PrefixNode*>& path = blocks.prefixes[tree_of_group_[group]].path;
  const int64_t first = specs_[group].first_visible(num_tokens) / block_size;
  for (int64_t i = (num_tokens + block_size - 1) / block_size - 1; i >= first; --i) {
    const int32_t id = i < static_cast<int64_t>(path.size()) ? path[static_cast<size_t>(i)]->cached[group] : kNullBlock;
    if (id == kNullBlock) return i;
    const bool is_copied = (i + 1) * block_size > num_tokens;
    if (is_copied && pools_[group].cached_in_step(id) >= step_id) return i;
  }
  return -1;
}

PrefixHit BlockManager::cached_hit(const SequenceBlocks& blocks, int64_t num_tokens) const {
  PrefixHit hit{num_tokens, BlockTables(pools_.size())};
  for (size_t g = 0; g < pools_.size(); ++g) {
    const int64_t block_size = specs_[g].block_size;
    const std::vector<PrefixNode*>& path = blocks.prefixes[tree_of_group_[g]].path;
    hit.tables[g].assign(static_cast<size_t>((num_tokens + block_size - 1) / block_size), kNullBlock);
    for (auto i = static_cast<size_t>(specs_[g].first_visible(num_tokens) / block_size); i < hit.tables[g].size();
         ++i) {
      hit.tables[g][i] = path[i]->cached[g];
    }
  }
  return hit;
}

int64_t BlockManager::longest_hit(int64_t num_tokens, bool may_copy) const {
  return may_copy ? num_tokens - 1 : (num_tokens - 1) / alignment_ * alignment_;
}

PrefixHit BlockManager::find_hit(const SequenceBlocks& blocks, int64_t num_tokens, uint64_t step_id,
                                 bool may_copy) const {
  if (blocks.prefixes.empty()) return no_hit();
  int64_t candidate = longest_hit(num_tokens, may_copy);
  while (candidate > 0) {
    int64_t limit = candidate;
    for (size_t g = 0; g < pools_.size(); ++g) {
      const int64_t missing = last_missing(g, blocks, candidate, step_id);
      if (missing >= 0) limit = std::min(limit, missing * specs_[g].block_size);
    }
    if (limit == candidate) return cached_hit(blocks, candidate);
    candidate = std::min(limit, candidate - 1) / alignment_ * alignment_;
  }
  return no_hit();
}

PrefixHit BlockManager::fork_hit(const SequenceBlocks& parent, int64_t num_tokens) const {
  PrefixHit hit{num_tokens, BlockTables(pools_.size())};
  for (size_t g = 0; g < pools_.size(); ++g) {
    const int64_t block_size = specs_[g].block_size, first = specs_[g].first_visible(num_tokens) / block_size;
    const int64_t size = (num_tokens + block_size - 1) / block_size;
    if (first < std::min(parent.first_kept[g], size)) return no_hit();
    hit.tables[g].assign(parent.tables[g].begin(), parent.tables[g].begin() + size);
    std::fill_n(hit.tables[g].begin(), std::min(first, size), kNullBlock);
  }
  return hit;
}

bool BlockManager::is_being_computed(const SequenceBlocks& blocks, int64_t num_tokens) const {
  for (size_t t = 0; t < blocks.prefixes.size(); ++t) {
    const std::vector<PrefixNode*>& path = blocks.prefixes[t].path;
    const auto next = static_cast<size_t>(num_tokens / trees_[t].block_size());
    if (next < path.size() && path[next]->num_computing > 0) return true;
  }
  return false;
}

int64_t BlockManager::num_free_blocks_used(int group, const PrefixHit& hit) const {
  const auto g = static_cast<size_t>(group);
  int64_t count = hit.num_tokens % specs_[g].block_size != 0 ? 1 : 0;
  for (const int32_t id : hit.tables[g]) count += id != kNullBlock && pools_[g].is_free(id) ? 1 : 0;
  return count;
}

int64_t BlockManager::num_held_by(int group, const PrefixHit& hit) const {
  const std::vector<int32_t>& table = hit.tables[static_cast<size_t>(group)];
  return std::count_if(table.begin(), table.end(), [](int32_t id) { return id != kNullBlock; });
}

void BlockManager::take_hit(SequenceBlocks& blocks, const PrefixHit& hit, uint64_t step_id,
                            std::vector<GroupCopies>& copies, BlockTables& fresh) {
  blocks.tables = hit.tables;
  for (size_t g = 0; g < pools_.size(); ++g) {
    TM_ASSERT(blocks.first_kept[g] == 0);
    for (const int32_t id : hit.tables[g]) {
      if (id == kNullBlock) {
        ++blocks.first_kept[g];
      } else {
        pools_[g].reference(id);
      }
    }
  }
  for (size_t g = 0; g < pools_.size(); ++g) {
    if (hit.num_tokens % specs_[g].block_size == 0) continue;
    const int32_t source = blocks.tables[g].back();
    const int32_t destination = blocks.tables[g].back() = take_block(g, fresh);
    drop_reference(g, source, step_id);
    const auto group = static_cast<int32_t>(g);
    auto at = std::find_if(copies.begin(), copies.end(), [&](const GroupCopies& c) { return c.group == group; });
    if (at == copies.end()) at = copies.insert(at, {group, {}});
    at->copies.push_back({source, destination});
  }
  for (size_t t = 0; t < blocks.prefixes.size(); ++t) {
    SequenceBlocks::Prefix& prefix = blocks.prefixes[t];
    prefix.num_claimed = static_cast<int64_t>(prefix.path.size());
    prefix.num_registered = std::min(hit.num_tokens / trees_[t].block_size(), prefix.num_claimed);
    for (int64_t i = prefix.num_registered; i < prefix.num_claimed; ++i) {
      ++prefix.path[static_cast<size_t>(i)]->num_computing;
    }
  }
}

void BlockManager::register_computed(SequenceBlocks& blocks, int64_t num_computed, uint64_t step_id) {
  for (size_t t = 0; t < blocks.prefixes.size(); ++t) {
    SequenceBlocks::Prefix& prefix = blocks.prefixes[t];
    const int64_t end = std::min(num_computed / trees_[t].block_size(), static_cast<int64_t>(prefix.path.size()));
    for (int64_t i = prefix.num_registered; i < end; ++i) {
      PrefixNode* node = prefix.path[static_cast<size_t>(i)];
      if (i < prefix.num_claimed) --node->num_computing;
      for (size_t g = 0; g < pools_.size(); ++g) {
        if (tree_of_group_[g] != t || node->cached[g] != kNullBlock) continue;
        const int32_t id = blocks.tables[g][static_cast<size_t>(i)];
        if (id == kNullBlock) continue;
        pools_[g].cache(id, node, step_id);
        node->cached[g] = id;
        ++node->num_cached;
      }
    }
    prefix.num_registered = std::max(prefix.num_registered, end);
  }
}

}  // namespace tokenmill
