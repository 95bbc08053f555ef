// Bulk and tensor copies: queued by threads, moved by the scheduler (loads) or by the thread that waits (stores).
#include <cstring>

#include "kernels/emulation/block/block.h"
#include "kernels/emulation/block/mbarrier.h"

namespace tokenmill::emulation {

namespace {

BulkCopy& add_copy(const char* what, Site site) {
  AsyncState& async = this_block().async;
  if (async.num_copies == AsyncState::kMaxCopies) {
    fail(site, std::string(what) + ": more than " + std::to_string(AsyncState::kMaxCopies) +
                   " copies of one block under way");
  }
  sanitizer::release(&async.issued);
  return async.copies[async.num_copies++];
}

/// As the copy engine: its own identity, ordered behind the threads that issued copies.
void move(Block& block, const BulkCopy& copy) {
  sanitizer::become(block.async.engine);
  sanitizer::acquire(&block.async.issued);
  if (copy.is_tensor) {
    move_box(copy.box, copy.shared, static_cast<uint32_t>(copy.shared - block.shared.base()), copy.is_store);
  } else if (copy.is_store) {
    std::memcpy(copy.global, copy.shared, copy.bytes);
  } else {
    std::memcpy(copy.shared, copy.global, copy.bytes);
  }
}

BulkCopy take(AsyncState& async, int i) {
  const BulkCopy copy = async.copies[i];
  --async.num_copies;
  for (int k = i; k < async.num_copies; ++k) async.copies[k] = async.copies[k + 1];
  return copy;
}

void check_bulk(const char* what, const void* shared, const void* global, uint32_t bytes, Site site) {
  if (bytes == 0 || bytes % 16 != 0) {
    fail(site, std::string(what) + " of " + std::to_string(bytes) + " bytes; the number must be a multiple of 16");
  }
  check_shared(what, shared, bytes, 16, site);
  if (reinterpret_cast<uintptr_t>(global) % 16 != 0) {
    fail(site, std::string(what) + ": the global address is not a multiple of 16");
  }
  if (sanitizer::is_poisoned(global, bytes)) fail(site, std::string(what) + ": the global range is out of bounds");
}

void add_load(const BulkCopy& load, uint64_t* barrier, const char* what, Site site) {
  const int counted_by = barrier_for_copy(barrier, site);
  BulkCopy& copy = add_copy(what, site) = load;
  copy.barrier = counted_by;
  copy.site = site;
  sanitizer::quiet_fill(load.shared, 0xff, load.bytes);
}

void add_store(const BulkCopy& store, const char* what, Site site) {
  BulkCopy& copy = add_copy(what, site) = store;
  copy.is_store = true;
  copy.owner = current_thread->linear;
  copy.group = this_fiber().num_store_groups;
  copy.site = site;
}

}  // namespace

void start_bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier, Site site) {
  check_bulk("cp.async.bulk", to, from, bytes, site);
  BulkCopy load{};
  load.shared = static_cast<unsigned char*>(to);
  load.global = static_cast<unsigned char*>(const_cast<void*>(from));
  load.bytes = bytes;
  add_load(load, barrier, "cp.async.bulk", site);
}

void start_bulk_store(void* to, const void* from, uint32_t bytes, Site site) {
  check_bulk("cp.async.bulk", from, to, bytes, site);
  BulkCopy store{};
  store.shared = static_cast<unsigned char*>(const_cast<void*>(from));
  store.global = static_cast<unsigned char*>(to);
  store.bytes = bytes;
  add_store(store, "cp.async.bulk", site);
}

void start_tensor_load(void* to, const CUtensorMap* map, int rank, const int* coordinates, uint64_t* barrier,
                       Site site) {
  BulkCopy load{};
  load.box = check_box("cp.async.bulk.tensor", to, map, rank, coordinates, site);
  load.is_tensor = true;
  load.shared = static_cast<unsigned char*>(to);
  load.bytes = box_bytes(*map);
  add_load(load, barrier, "cp.async.bulk.tensor", site);
}

void start_tensor_store(const void* from, const CUtensorMap* map, int rank, const int* coordinates, Site site) {
  BulkCopy store{};
  store.box = check_box("cp.async.bulk.tensor", from, map, rank, coordinates, site);
  store.is_tensor = true;
  store.shared = static_cast<unsigned char*>(const_cast<void*>(from));
  store.bytes = box_bytes(*map);
  add_store(store, "cp.async.bulk.tensor", site);
}

void commit_bulk_stores() { ++this_fiber().num_store_groups; }

void wait_bulk_stores(int num_pending) {
  Block& block = this_block();
  AsyncState& async = block.async;
  Fiber& fiber = this_fiber();
  for (int i = 0; i < async.num_copies;) {
    const BulkCopy& copy = async.copies[i];
    const bool due = copy.is_store && copy.owner == fiber.linear &&
                     copy.group + static_cast<unsigned>(num_pending) < fiber.num_store_groups;
    if (!due) {
      ++i;
      continue;
    }
    move(block, take(async, i));
    sanitizer::release(&async.stored);
    sanitizer::become(fiber.stack);
  }
  sanitizer::acquire(&async.stored);
}

bool run_one_load(Block& block) {
  AsyncState& async = block.async;
  int loads[AsyncState::kMaxCopies], num_loads = 0;
  for (int i = 0; i < async.num_copies; ++i) {
    if (!async.copies[i].is_store) loads[num_loads++] = i;
  }
  if (num_loads == 0) return false;
  // Copies end in any order: the first last in the fixed orders.
  const auto pick = block.order == Order::kRandom ? block.random() % static_cast<unsigned>(num_loads) : num_loads - 1;
  const BulkCopy copy = take(async, loads[pick]);
  move(block, copy);
  complete_bytes(block, copy.barrier, copy.bytes);
  sanitizer::become(block.host_stack);
  return true;
}

void start_async(Block& block) {
  AsyncState& async = block.async;
  async.num_barriers = async.num_copies = 0;
  sanitizer::make_identity(async.engine);
}

std::string check_async_at_end(const Block& block) {
  if (block.async.num_copies == 0) return "";
  const BulkCopy& copy = block.async.copies[0];
  return to_string(copy.site) + ": the block ends with " + std::to_string(block.async.num_copies) + " bulk " +
         (copy.is_store ? "stores" : "loads") + " under way, this one first; wait for them";
}

}  // namespace tokenmill::emulation
