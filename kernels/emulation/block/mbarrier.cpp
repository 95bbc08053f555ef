#include "kernels/emulation/block/mbarrier.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/emulation/block/block.h"

namespace tokenmill::emulation {

namespace {

constexpr int64_t kMaxBytes = (1 << 20) - 1;  // what the word counts

int find(const AsyncState& async, const uint64_t* word) {
  for (int i = 0; i < async.num_barriers; ++i) {
    if (async.barriers[i].word == word) return i;
  }
  return -1;
}

int find_initialised(const uint64_t* word, Site site) {
  check_shared("mbarrier", word, 8, 8, site);
  const int i = find(this_block().async, word);
  if (i < 0) fail(site, "mbarrier: used before mbarrier.init, or after inval");
  sanitizer::note_read(word, 8);  // orders it behind the init, or TSan says so
  return i;
}

char* token(AsyncState& async, int i, unsigned phase) { return &async.ordered[i][phase & 1]; }

}  // namespace

void init_mbarrier(uint64_t* word, int num_arrivals, Site site) {
  check_shared("mbarrier.init", word, 8, 8, site);
  if (num_arrivals < 1 || num_arrivals > kMaxBytes) {
    fail(site, "mbarrier.init: " + std::to_string(num_arrivals) + " arrivals; 1 to 1048575 are allowed");
  }
  AsyncState& async = this_block().async;
  int i = find(async, word);
  if (i < 0) {
    if (async.num_barriers == AsyncState::kMaxBarriers) fail(site, "more than 128 mbarriers in one block");
    i = async.num_barriers++;
  }
  async.barriers[i] = {word, num_arrivals, num_arrivals, 0, 0, {}};
  sanitizer::note_write(word, 8);
}

void invalidate_mbarrier(uint64_t* word, Site site) {
  AsyncState& async = this_block().async;
  async.barriers[find_initialised(word, site)].word = nullptr;
  sanitizer::note_write(word, 8);
}

/// Completes the phase when nothing is outstanding.
void try_complete_phase(Block& block, int i) {
  MBarrier& barrier = block.async.barriers[i];
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phase;
  barrier.pending = barrier.num_arrivals;
  for (unsigned w = 0; w < block.num_warps; ++w) {
    make_ready(block, w, barrier.waiting[w]);
    barrier.waiting[w] = 0;
  }
}

void arrive_mbarrier(uint64_t* word, uint32_t bytes, bool arrives, Site site) {
  const int i = find_initialised(word, site);
  Block& block = this_block();
  MBarrier& barrier = block.async.barriers[i];
  barrier.bytes += bytes;
  if (barrier.bytes > kMaxBytes) fail(site, "mbarrier: more than 1048575 bytes outstanding");
  sanitizer::release(token(block.async, i, barrier.phase));
  if (!arrives) return;
  if (barrier.pending == 0) {
    fail(site,
         "mbarrier: more arrivals in a phase than the " + std::to_string(barrier.num_arrivals) + " it was made for");
  }
  --barrier.pending;
  try_complete_phase(block, i);
}

bool test_mbarrier(uint64_t* word, int parity, Site site) {
  const int i = find_initialised(word, site);
  AsyncState& async = this_block().async;
  if ((async.barriers[i].phase & 1) == (static_cast<unsigned>(parity) & 1)) {
    yield();
    return false;
  }
  sanitizer::acquire(token(async, i, static_cast<unsigned>(parity)));
  return true;
}

void wait_mbarrier(uint64_t* word, int parity, Site site) {
  const int i = find_initialised(word, site);
  AsyncState& async = this_block().async;
  while ((async.barriers[i].phase & 1) == (static_cast<unsigned>(parity) & 1)) {
    async.barriers[i].waiting[current_thread->warp] |= 1u << current_thread->lane;
    wait_for("an mbarrier", site);
  }
  sanitizer::acquire(token(async, i, static_cast<unsigned>(parity)));
}

void complete_bytes(Block& block, int i, uint32_t bytes) {
  MBarrier& barrier = block.async.barriers[i];
  barrier.bytes -= bytes;
  sanitizer::release(token(block.async, i, barrier.phase));
  try_complete_phase(block, i);
}

int barrier_for_copy(const uint64_t* word, Site site) { return find_initialised(word, site); }

std::string describe_waited_barriers(const Block& block) {
  std::string text;
  for (int i = 0; i < block.async.num_barriers; ++i) {
    const MBarrier& barrier = block.async.barriers[i];
    if (std::none_of(barrier.waiting, barrier.waiting + 32, [](uint32_t lanes) { return lanes != 0; })) continue;
    const auto offset = reinterpret_cast<const unsigned char*>(barrier.word) - block.shared.base();
    text += "; the mbarrier at shared address " + std::to_string(offset) + " misses " +
            std::to_string(barrier.pending) + " of " + std::to_string(barrier.num_arrivals) + " arrivals and " +
            std::to_string(barrier.bytes) + " bytes";
  }
  return text;
}

}  // namespace tokenmill::emulation
