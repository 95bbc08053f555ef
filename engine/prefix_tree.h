#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tokenmill {

/// 128 bits of XXH3.
struct BlockHash {
  uint64_t low = 0, high = 0;
  bool operator==(const BlockHash&) const = default;
};
BlockHash xxh3_128(std::span<const std::byte> bytes);

/// What KV depends on besides the tokens: sequences share cached blocks only when both are equal. The model is the
/// engine's, one for all.
struct CacheIdentity {
  std::string adapter;     ///< of the adapter's content, not its name: a name may point at other files tomorrow
  std::string cache_salt;  ///< of the row
  bool operator==(const CacheIdentity&) const = default;
};

/// One full block of tokens behind one prefix: the path from the root to a node *is* the prefix, so two sequences that
/// reach the same node have the same tokens and the same identity, compared one by one.
struct PrefixNode {
  PrefixNode* parent = nullptr;  ///< null: a root, without tokens
  BlockHash hash;                ///< of the parent's hash and token_ids; of the identity at a root
  std::vector<int32_t> token_ids;
  std::unique_ptr<const CacheIdentity> identity;  ///< roots only
  std::vector<int32_t> cached;  ///< per KV group: the block that holds these tokens' KV, or kNullBlock
  int32_t num_cached = 0;       ///< entries of cached that are blocks
  int32_t num_children = 0;
  int32_t num_holders = 0;    ///< sequences whose path leads through it
  int32_t num_waiting = 0;    ///< of them, those that wait: known future uses
  int32_t num_computing = 0;  ///< running sequences that are still going to compute it
};

/// The token prefixes of one block size that sequences have or that cached blocks hold. A child is looked up by its
/// hash, chained over the blocks before it, and is taken only when parent and tokens are equal.
class PrefixTree {
 public:
  using HashFunction = BlockHash (*)(std::span<const std::byte>);
  PrefixTree(int64_t block_size, int num_groups, HashFunction hash = xxh3_128);

  int64_t block_size() const { return block_size_; }
  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }
  /// Found or made. Null when another prefix has the same hash: such a prefix is not cached.
  PrefixNode* root(const CacheIdentity& identity);
  PrefixNode* child(PrefixNode& parent, std::span<const int32_t> token_ids);
  /// Removes the node, and then its ancestors, while nothing holds them, stands behind them or is cached in them.
  void prune(PrefixNode* node);
  /// Checks each node's own counts and shows it to check; for tests.
  void audit(const std::function<void(const PrefixNode&)>& check) const;

 private:
  struct HashOf {
    size_t operator()(const BlockHash& hash) const { return hash.low; }
  };
  PrefixNode* make(const BlockHash& hash);

  int64_t block_size_;
  int num_groups_;
  HashFunction hash_;
  std::unordered_map<BlockHash, std::unique_ptr<PrefixNode>, HashOf> nodes_;
  std::vector<std::byte> bytes_;  // scratch
};

}  // namespace tokenmill
