#define XXH_INLINE_ALL
#include "engine/prefix_tree.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "engine/block_tables.h"
#include "kernels/core/check.h"

namespace tokenmill {
namespace {

void append(std::vector<std::byte>& bytes, const void* data, size_t size) {
  const auto* begin = static_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), begin, begin + size);
}

}  // namespace

BlockHash xxh3_128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

PrefixTree::PrefixTree(int64_t block_size, int num_groups, HashFunction hash)
    : block_size_(block_size), num_groups_(num_groups), hash_(hash) {}

PrefixNode* PrefixTree::make(const BlockHash& hash) {
  auto node = std::make_unique<PrefixNode>();
  node->hash = hash;
  node->cached.assign(static_cast<size_t>(num_groups_), kNullBlock);
  return nodes_.emplace(hash, std::move(node)).first->second.get();
}

PrefixNode* PrefixTree::root(const CacheIdentity& identity) {
  bytes_.clear();
  const uint64_t adapter_size = identity.adapter.size();  // keeps ("a", "b") and ("ab", "") apart
  append(bytes_, &adapter_size, sizeof(adapter_size));
  append(bytes_, identity.adapter.data(), identity.adapter.size());
  append(bytes_, identity.cache_salt.data(), identity.cache_salt.size());
  const BlockHash hash = hash_(bytes_);
  const auto found = nodes_.find(hash);
  if (found == nodes_.end()) {
    PrefixNode* node = make(hash);
    node->identity = std::make_unique<CacheIdentity>(identity);
    return node;
  }
  PrefixNode* node = found->second.get();
  return node->identity != nullptr && *node->identity == identity ? node : nullptr;
}

PrefixNode* PrefixTree::child(PrefixNode& parent, std::span<const int32_t> token_ids) {
  bytes_.clear();
  append(bytes_, &parent.hash.low, sizeof(parent.hash.low));
  append(bytes_, &parent.hash.high, sizeof(parent.hash.high));
  append(bytes_, token_ids.data(), token_ids.size_bytes());
  const BlockHash hash = hash_(bytes_);
  const auto found = nodes_.find(hash);
  if (found == nodes_.end()) {
    PrefixNode* node = make(hash);
    node->parent = &parent;
    node->token_ids.assign(token_ids.begin(), token_ids.end());
    ++parent.num_children;
    return node;
  }
  PrefixNode* node = found->second.get();
  const bool same = node->parent == &parent &&
                    std::equal(token_ids.begin(), token_ids.end(), node->token_ids.begin(), node->token_ids.end());
  return same ? node : nullptr;
}

void PrefixTree::prune(PrefixNode* node) {
  while (node != nullptr && node->num_children == 0 && node->num_holders == 0 && node->num_cached == 0) {
    PrefixNode* parent = node->parent;
    const BlockHash hash = node->hash;
    nodes_.erase(hash);
    if (parent != nullptr) --parent->num_children;
    node = parent;
  }
}

void PrefixTree::audit(const std::function<void(const PrefixNode&)>& check) const {
  std::unordered_map<const PrefixNode*, int32_t> num_children;
  for (const auto& [hash, node] : nodes_) {
    if (node->parent != nullptr) ++num_children[node->parent];
  }
  for (const auto& [hash, node] : nodes_) {
    const auto num_cached =
        std::count_if(node->cached.begin(), node->cached.end(), [](int32_t id) { return id != kNullBlock; });
    TM_ASSERT(node->num_children == num_children[node.get()] && node->num_cached == num_cached,
              "a prefix has {} children, {} counted; {} blocks, {} counted", node->num_children,
              num_children[node.get()], node->num_cached, num_cached);
    TM_ASSERT(node->num_children > 0 || node->num_cached > 0 || node->num_holders > 0, "a prefix is left behind");
    check(*node);
  }
}

}  // namespace tokenmill
