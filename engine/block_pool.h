#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "engine/prefix_tree.h"

namespace tokenmill {

/// The block ids of one KV group: who uses each, and in which order free ones are handed out.
///   references  tables of running sequences in which the block stands
///   pins        launched steps that may still read or write it after its reference is gone
/// A block without either is free. Free blocks that hold nothing worth keeping go first (the last one freed before the
/// others, so that a small load touches little memory), then cached ones by the time they became free, those that
/// waiting sequences will use after all others.
class BlockPool {
 public:
  explicit BlockPool(int64_t num_blocks);

  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return num_free_; }
  /// Blocks that only steps in flight hold: free when those have been collected.
  int64_t num_pinned() const { return num_pinned_; }
  int64_t num_referenced() const { return num_blocks() - num_free_ - num_pinned_; }
  /// References of all blocks together.
  int64_t num_references() const { return num_references_; }

  struct Taken {
    int32_t id;
    bool recycled;        ///< it has been in use before
    PrefixNode* evicted;  ///< what was cached in it, or null; the caller tells the node
  };
  /// Hands out the next free block with one reference. Only while num_free() > 0.
  Taken take();
  void reference(int32_t id);
  void release(int32_t id);
  void pin(int32_t id);
  void unpin(int32_t id);

  int32_t references(int32_t id) const { return at(id).references; }
  bool is_free(int32_t id) const { return at(id).references == 0 && at(id).pins == 0; }
  PrefixNode* node(int32_t id) const { return at(id).node; }
  /// The step that writes the last of the cached tokens.
  uint64_t cached_in_step(int32_t id) const { return at(id).step_id; }
  void cache(int32_t id, PrefixNode* node, uint64_t step_id);
  void uncache(int32_t id);
  /// Call when the node's num_waiting has become zero or has left zero.
  void refresh_order(int32_t id);

  /// Throws Error(kInternal) when lists and counts contradict each other; references[id] is what they must be.
  void audit(const std::vector<int32_t>& references) const;

 private:
  enum List : uint8_t { kUncached, kCached, kWanted, kNone };
  struct Block {
    int32_t references = 0, pins = 0;
    int32_t previous = -1, next = -1;  // in its list
    List list = kNone;
    bool used_before = false;
    PrefixNode* node = nullptr;
    uint64_t step_id = 0;
  };
  struct Ends {
    int32_t first = -1, last = -1;
  };
  Block& at(int32_t id) { return blocks_[static_cast<size_t>(id)]; }
  const Block& at(int32_t id) const { return blocks_[static_cast<size_t>(id)]; }
  void become_free(int32_t id);
  void enter_list(int32_t id);
  void leave_list(int32_t id);

  std::vector<Block> blocks_;
  std::array<Ends, 3> lists_;  // taken from the front
  int64_t num_free_ = 0, num_pinned_ = 0, num_references_ = 0;
};

}  // namespace tokenmill
