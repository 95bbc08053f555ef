#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "kernels/kv_pool.h"

namespace tokenmill {

/// Hands out the KV block ids of every group and counts their users; owns no memory. Each group has its own blocks,
/// free list and block size. A block is held by the tables it stands in: a table that is released drops one reference
/// from each of its blocks, and a block without references is free. Who may still be reading a block is the Scheduler's
/// knowledge: it releases a table only when no launched step uses it.
class BlockManager {
 public:
  /// num_blocks: per group, as many as groups.
  BlockManager(std::span<const KvSpec> groups, std::span<const int64_t> num_blocks);

  int num_groups() const { return static_cast<int>(groups_.size()); }
  int64_t num_blocks(int group) const;
  int64_t num_free_blocks(int group) const;
  /// Blocks that cover positions [0, num_tokens).
  int64_t num_blocks_for(int group, int64_t num_tokens) const;

  /// Over all groups.
  int64_t num_used_blocks() const { return num_used_blocks_; }
  int64_t num_total_blocks() const { return num_total_blocks_; }

  /// Extends tables until they cover positions [0, num_tokens) in every group. appended, of num_groups lists, gets the
  /// ids added to each table; fresh, likewise, those of them that have been in use before (their old values must not
  /// matter). Returns false and changes nothing when a group has too few free blocks: normal.
  bool grow(BlockTables& tables, int64_t num_tokens, BlockTables& appended, BlockTables& fresh);

  /// Drops the tables' references, last block first, so that the next table gets the ids in ascending order. Tables are
  /// empty afterwards.
  void release(BlockTables& tables);

 private:
  struct Group {
    int64_t block_size = 0;
    std::vector<int32_t> free;            // a stack: the next id is at the back
    std::vector<int32_t> num_references;  // per block id
    std::vector<bool> used_before;        // per block id
  };
  std::vector<Group> groups_;
  int64_t num_used_blocks_ = 0;
  int64_t num_total_blocks_ = 0;
};

}  // namespace tokenmill
