#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/block_pool.h"
#include "engine/block_tables.h"
#include "engine/prefix_tree.h"
#include "engine/step_plan.h"
#include "kernels/kv_pool.h"

namespace tokenmill {

/// What the BlockManager keeps with a sequence; changed by it alone. Empty without prefixes when caching is off.
struct SequenceBlocks {
  /// The prefix of the known tokens in one block size. Nodes [num_registered, num_claimed) are counted in their
  /// num_computing: this sequence is going to compute them.
  struct Prefix {
    std::vector<PrefixNode*> path;  ///< node i: block i of the known tokens
    int64_t num_registered = 0;     ///< blocks whose computing has been planned
    int64_t num_claimed = 0;
    bool closed = false;  ///< the path ends before the tokens do: another prefix has the same hash
  };
  BlockTables tables;               ///< per KV group
  std::vector<int64_t> first_kept;  ///< per KV group: table entries before it are kNullBlock
  std::vector<Prefix> prefixes;     ///< per block size
  bool waiting = false;             ///< counted in its nodes' num_waiting
};

/// KV that a sequence need not compute: positions [0, num_tokens). Where num_tokens is inside a block, the last entry
/// of that group's table is a block to copy, not to share.
struct PrefixHit {
  int64_t num_tokens = 0;
  BlockTables tables;  ///< per group; kNullBlock where the window has passed; empty tables for no hit
};

/// Hands out the KV block ids of every group and counts their users; owns no memory. Each group has its own blocks,
/// tables, block size and rule of what a hit needs: full attention and latent groups all blocks of the prefix, sliding
/// windows the blocks that the next position sees.
///
/// A block is free when no table holds it and every launched step that may use it has been collected. Full blocks stay
/// findable by their prefix until they are handed out again.
class BlockManager {
 public:
  /// num_blocks: per group, as many as groups. hash: for tests.
  BlockManager(std::span<const KvSpec> groups, std::span<const int64_t> num_blocks, bool enable_prefix_caching,
               PrefixTree::HashFunction hash = xxh3_128);

  int num_groups() const { return static_cast<int>(specs_.size()); }
  const BlockPool& pool(int group) const { return pools_[static_cast<size_t>(group)]; }
  int64_t num_blocks(int group) const { return pool(group).num_blocks(); }
  int64_t num_free_blocks(int group) const { return pool(group).num_free(); }
  /// Blocks that cover positions [0, num_tokens).
  int64_t num_blocks_for(int group, int64_t num_tokens) const;
  /// Blocks that a group needs at once to compute positions [0, num_tokens) in chunks of at most chunk tokens: all of
  /// them, or what a window and the chunk cover.
  int64_t num_live_blocks_for(int group, int64_t num_tokens, int64_t chunk) const;

  /// Over all groups: referenced, or used by steps in flight.
  int64_t num_used_blocks() const;
  int64_t num_total_blocks() const;
  /// Blocks that sharing saves: table entries beyond the first of each block.
  int64_t num_shared_blocks() const;
  /// Token slots of all referenced blocks.
  int64_t num_allocated_slots() const;

  // ---- prefixes -------------------------------------------------------------------------------------------------
  /// Extends the sequence's paths over the full blocks of its known tokens.
  void follow(SequenceBlocks& blocks, const CacheIdentity& identity, std::span<const int32_t> token_ids);
  /// The sequence waits: what it could hit is evicted last. withdraw() ends that.
  void announce(SequenceBlocks& blocks);
  void withdraw(SequenceBlocks& blocks);
  /// Gives the paths up.
  void leave(SequenceBlocks& blocks);
  /// Removes everything from the cache that lies on the sequence's paths, whoever computed it.
  void forget(const SequenceBlocks& blocks);

  PrefixHit no_hit() const { return {0, BlockTables(pools_.size())}; }
  /// The longest part of num_tokens known tokens that a hit may cover: all but the last, and without a copy only blocks
  /// that are whole in every group.
  int64_t longest_hit(int64_t num_tokens, bool may_copy) const;
  /// The longest hit that all groups can serve, below num_tokens. Whole blocks of every group, or num_tokens - 1 with
  /// copies when the last block of the tokens is cached and may_copy; a copy's source must have been computed before
  /// step_id.
  PrefixHit find_hit(const SequenceBlocks& blocks, int64_t num_tokens, uint64_t step_id, bool may_copy) const;
  /// The hit that a sequence's own tables give another one with the same first num_tokens tokens, all computed before
  /// the next step. Empty when a window has passed them.
  PrefixHit fork_hit(const SequenceBlocks& parent, int64_t num_tokens) const;
  /// A running sequence is going to compute the block behind the first num_tokens tokens.
  bool is_being_computed(const SequenceBlocks& blocks, int64_t num_tokens) const;
  /// Free blocks of a group that taking the hit uses up: shared ones that are free now, copies and their sources.
  int64_t num_free_blocks_used(int group, const PrefixHit& hit) const;
  /// Blocks that stand in the group's table once the hit is taken.
  int64_t num_held_by(int group, const PrefixHit& hit) const;

  // ---- a running sequence ---------------------------------------------------------------------------------------
  /// Fills the sequence's empty tables with the hit and claims the blocks behind it. Sources of copies stay untouched
  /// until step_id has been collected. Copies and their destinations that have been in use before are appended.
  void take_hit(SequenceBlocks& blocks, const PrefixHit& hit, uint64_t step_id, std::vector<GroupCopies>& copies,
                BlockTables& fresh);
  /// How many tokens from position start on the tables and the free blocks of every group have room for.
  int64_t num_tokens_that_fit(const SequenceBlocks& blocks, int64_t start) const;
  /// The same behind a hit that has not been taken.
  int64_t num_tokens_that_fit(const PrefixHit& hit) const;
  /// True when a group that is short of blocks for num_tokens tokens gets some back once steps have been collected.
  bool will_have_more(const SequenceBlocks& blocks, int64_t start, int64_t num_tokens) const;
  /// Extends tables until they cover positions [0, num_tokens) in every group. appended, of num_groups lists, gets the
  /// ids added to each table; fresh, likewise, those of them that have been in use before (their old values must not
  /// matter). Returns false and changes nothing when a group has too few free blocks: normal.
  bool grow(SequenceBlocks& blocks, int64_t num_tokens, BlockTables& appended, BlockTables& fresh);
  /// Drops the blocks that no position from start on sees. last_step: the last launched step that uses the tables.
  /// Returns whether first_kept has changed.
  bool leave_window(SequenceBlocks& blocks, int64_t start, uint64_t last_step);
  /// The full blocks of positions [0, num_computed) whose tokens are known can be hit from now on; step_id: the last
  /// step that computes one of them.
  void register_computed(SequenceBlocks& blocks, int64_t num_computed, uint64_t step_id);
  /// Positions from num_computed on are going to be computed again, for num_known known tokens. Returns false and
  /// changes nothing when they cannot be: their blocks are shared, or a window has left what they see.
  bool rewind(SequenceBlocks& blocks, int64_t num_known, int64_t num_computed);
  /// Drops the tables' references, last block first: what is behind a prefix is evicted before it.
  void release(SequenceBlocks& blocks, uint64_t last_step);
  /// Steps up to step_id have been collected.
  void collected(uint64_t step_id);

  /// Throws Error(kInternal) unless all counts equal a recount over the running sequences; nobody_waits: no others have
  /// paths. For tests: its cost is proportional to all blocks and cached prefixes.
  void audit(std::span<const SequenceBlocks* const> running, bool nobody_waits) const;

 private:
  BlockPool& pool_at(size_t group) { return pools_[group]; }
  int64_t last_missing(size_t group, const SequenceBlocks& blocks, int64_t num_tokens, uint64_t step_id) const;
  PrefixHit cached_hit(const SequenceBlocks& blocks, int64_t num_tokens) const;
  int32_t take_block(size_t group, BlockTables& fresh);
  void drop_reference(size_t group, int32_t id, uint64_t last_step);
  void uncache(size_t group, int32_t id);
  void count_waiting(SequenceBlocks& blocks, int32_t by);
  void shorten_path(SequenceBlocks::Prefix& prefix, PrefixTree& tree, int64_t size);
  static void drop_claims(SequenceBlocks::Prefix& prefix, int64_t from);

  std::vector<KvSpec> specs_;
  std::vector<BlockPool> pools_;
  std::vector<PrefixTree> trees_;      // one per distinct block size; none without caching
  std::vector<size_t> tree_of_group_;  // index into trees_
  int64_t alignment_ = 1;              // least common multiple of the block sizes
  uint64_t collected_step_ = 0;
  std::map<uint64_t, std::vector<std::pair<size_t, int32_t>>> pinned_;  // by step: (group, block)
};

}  // namespace tokenmill
