#include "engine/block_pool.h"

#include "kernels/core/check.h"

namespace tokenmill {

BlockPool::BlockPool(int64_t num_blocks) : blocks_(static_cast<size_t>(num_blocks)) {
  for (int64_t id = num_blocks - 1; id >= 0; --id) enter_list(static_cast<int32_t>(id));
  num_free_ = num_blocks;
}

BlockPool::Taken BlockPool::take() {
  for (const Ends& list : lists_) {
    if (list.first < 0) continue;
    const int32_t id = list.first;
    Block& block = at(id);
    TM_ASSERT(block.references == 0 && block.pins == 0, "block {} is free and has {} users and {} steps", id,
              block.references, block.pins);
    leave_list(id);
    --num_free_;
    block.references = 1;
    ++num_references_;
    const Taken taken{id, block.used_before, block.node};
    block.node = nullptr;
    block.used_before = true;
    return taken;
  }
  TM_ASSERT(false, "no block of {} is free", num_blocks());
  return {};
}

void BlockPool::reference(int32_t id) {
  Block& block = at(id);
  if (block.references == 0) {
    if (block.pins == 0) {
      leave_list(id);
      --num_free_;
    } else {
      --num_pinned_;
    }
  }
  ++block.references;
  ++num_references_;
}

void BlockPool::release(int32_t id) {
  Block& block = at(id);
  TM_ASSERT(block.references > 0, "block {} is released and has no user", id);
  --block.references;
  --num_references_;
  if (block.references > 0) return;
  if (block.pins > 0) {
    ++num_pinned_;
  } else {
    become_free(id);
  }
}

void BlockPool::pin(int32_t id) {
  Block& block = at(id);
  TM_ASSERT(block.references > 0 || block.pins > 0, "block {} is free and cannot be in use by a step", id);
  ++block.pins;
}

void BlockPool::unpin(int32_t id) {
  Block& block = at(id);
  TM_ASSERT(block.pins > 0, "block {} is not in use by a step", id);
  if (--block.pins > 0 || block.references > 0) return;
  --num_pinned_;
  become_free(id);
}

void BlockPool::become_free(int32_t id) {
  ++num_free_;
  enter_list(id);
}

void BlockPool::cache(int32_t id, PrefixNode* node, uint64_t step_id) {
  Block& block = at(id);
  TM_ASSERT(block.node == nullptr && block.references > 0, "block {} cannot be cached: {} users", id, block.references);
  block.node = node;
  block.step_id = step_id;
}

void BlockPool::uncache(int32_t id) {
  at(id).node = nullptr;
  refresh_order(id);
}

void BlockPool::refresh_order(int32_t id) {
  if (at(id).list == kNone) return;
  leave_list(id);
  enter_list(id);
}

void BlockPool::enter_list(int32_t id) {
  Block& block = at(id);
  block.list = block.node == nullptr ? kUncached : block.node->num_waiting == 0 ? kCached : kWanted;
  Ends& list = lists_[block.list];
  if (list.first < 0) {
    list.first = list.last = id;
  } else if (block.list == kUncached) {
    block.next = list.first;
    at(list.first).previous = id;
    list.first = id;
  } else {
    block.previous = list.last;
    at(list.last).next = id;
    list.last = id;
  }
}

void BlockPool::leave_list(int32_t id) {
  Block& block = at(id);
  Ends& list = lists_[block.list];
  (block.previous < 0 ? list.first : at(block.previous).next) = block.next;
  (block.next < 0 ? list.last : at(block.next).previous) = block.previous;
  block.previous = block.next = -1;
  block.list = kNone;
}

void BlockPool::audit(const std::vector<int32_t>& references) const {
  int64_t num_free = 0, num_pinned = 0, num_references = 0, num_listed = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    TM_ASSERT(block.references == references[i], "block {} has {} references, {} tables hold it", i, block.references,
              references[i]);
    const bool is_free = block.references == 0 && block.pins == 0;
    TM_ASSERT(is_free == (block.list != kNone), "block {} with {} references and {} pins is in list {}", i,
              block.references, block.pins, static_cast<int>(block.list));
    num_free += is_free ? 1 : 0;
    num_pinned += block.references == 0 && block.pins > 0 ? 1 : 0;
    num_references += block.references;
  }
  for (const Ends& list : lists_) {
    for (int32_t id = list.first; id >= 0; id = at(id).next) ++num_listed;
  }
  TM_ASSERT(num_free == num_free_ && num_pinned == num_pinned_ && num_references == num_references_ &&
                num_listed == num_free_,
            "{} free ({} counted, {} listed), {} pinned ({}), {} references ({})", num_free_, num_free, num_listed,
            num_pinned_, num_pinned, num_references_, num_references);
}

}  // namespace tokenmill
