#include "engine/block_manager.h"

#include <doctest/doctest.h>

#include <numeric>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

KvSpec full(int64_t block_size) { return {.block_size = block_size}; }
KvSpec sliding(int64_t block_size, int64_t window) {
  return {.kind = KvSpec::Kind::kSlidingWindow, .window = window, .block_size = block_size};
}

Ids ids(int32_t first, int64_t count) {
  Ids out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

/// A manager and what a scheduler does with it, by hand.
struct Bench {
  Bench(const std::vector<KvSpec>& groups, const std::vector<int64_t>& num_blocks,
        PrefixTree::HashFunction hash = xxh3_128)
      : manager(groups, num_blocks, /*enable_prefix_caching=*/true, hash) {}

  SequenceBlocks sequence(const Ids& tokens, const CacheIdentity& identity = {}) {
    SequenceBlocks blocks;
    blocks.tables.resize(static_cast<size_t>(manager.num_groups()));
    blocks.first_kept.assign(static_cast<size_t>(manager.num_groups()), 0);
    manager.follow(blocks, identity, tokens);
    return blocks;
  }
  bool grow(SequenceBlocks& blocks, int64_t num_tokens) {
    appended.assign(static_cast<size_t>(manager.num_groups()), {});
    fresh.assign(static_cast<size_t>(manager.num_groups()), {});
    return manager.grow(blocks, num_tokens, appended, fresh);
  }
  PrefixHit hit(const SequenceBlocks& blocks, int64_t num_tokens, bool may_copy = true) const {
    return manager.find_hit(blocks, num_tokens, step_id, may_copy);
  }
  int64_t num_hit(const Ids& tokens, const CacheIdentity& identity = {}) {
    SequenceBlocks blocks = sequence(tokens, identity);
    const PrefixHit found = hit(blocks, static_cast<int64_t>(tokens.size()));
    manager.leave(blocks);
    return found.num_tokens;
  }
  /// Hit, blocks, registered, in a step of its own that is collected at once. Returns the tokens hit.
  int64_t compute(SequenceBlocks& blocks, int64_t num_tokens) {
    const PrefixHit found = hit(blocks, num_tokens);
    fresh.assign(static_cast<size_t>(manager.num_groups()), {});
    copies.clear();
    manager.take_hit(blocks, found, step_id, copies, fresh);
    appended.assign(static_cast<size_t>(manager.num_groups()), {});
    REQUIRE(manager.grow(blocks, num_tokens, appended, fresh));
    manager.register_computed(blocks, num_tokens, step_id);
    manager.collected(step_id++);
    return found.num_tokens;
  }
  void end(SequenceBlocks& blocks) {
    manager.release(blocks, step_id - 1);
    manager.leave(blocks);
  }

  BlockManager manager;
  BlockTables appended, fresh;
  std::vector<GroupCopies> copies;
  uint64_t step_id = 1;
};

TEST_CASE("a table grows by whole blocks, in ascending ids, and only when a position needs one") {
  Bench bench({full(16)}, {4});
  SequenceBlocks blocks = bench.sequence({});
  CHECK(bench.grow(blocks, 1));
  CHECK(bench.appended[0] == Ids{0});
  CHECK(bench.grow(blocks, 16));
  CHECK(bench.appended[0].empty());
  CHECK(bench.grow(blocks, 33));
  CHECK(bench.appended[0] == Ids{1, 2});
  CHECK(bench.fresh[0].empty());
  CHECK(blocks.tables[0] == Ids{0, 1, 2});
  CHECK(bench.manager.num_used_blocks() == 3);
  CHECK(bench.manager.num_free_blocks(0) == 1);
  CHECK(bench.manager.num_tokens_that_fit(blocks, 33) == 31);
}

TEST_CASE("growth that one group cannot serve changes no group") {
  Bench bench({full(16), full(16)}, {4, 2});
  SequenceBlocks blocks = bench.sequence({});
  CHECK(bench.grow(blocks, 32));
  CHECK_FALSE(bench.grow(blocks, 33));
  CHECK(bench.appended == BlockTables(2));
  CHECK(blocks.tables == BlockTables{{0, 1}, {0, 1}});
  CHECK(bench.manager.num_free_blocks(0) == 2);
  CHECK(bench.manager.num_used_blocks() == 4);
  CHECK(bench.manager.num_total_blocks() == 6);
}

TEST_CASE("groups count in their own block size, and windows only what they show") {
  Bench bench({full(16), full(32), sliding(16, 32)}, {8, 8, 8});
  SequenceBlocks blocks = bench.sequence({});
  CHECK(bench.grow(blocks, 65));
  CHECK(blocks.tables == BlockTables{{0, 1, 2, 3, 4}, {0, 1, 2}, {0, 1, 2, 3, 4}});
  CHECK(bench.manager.num_blocks_for(1, 64) == 2);
  CHECK(bench.manager.num_blocks_for(1, 0) == 0);
  CHECK(bench.manager.num_live_blocks_for(0, 100, 1) == 7);
  CHECK(bench.manager.num_live_blocks_for(2, 100, 1) == 3);  // 31 positions before, and the new one
  CHECK(bench.manager.num_live_blocks_for(2, 100, 16) == 4);
  CHECK(bench.manager.num_live_blocks_for(2, 20, 1) == 2);
}

TEST_CASE("released blocks come back in ascending order and are reported as recycled, once each time") {
  Bench bench({full(16)}, {4});
  SequenceBlocks first = bench.sequence({}), second = bench.sequence({});
  CHECK(bench.grow(first, 48));
  bench.end(first);
  CHECK(first.tables[0].empty());
  CHECK(bench.manager.num_used_blocks() == 0);
  CHECK(bench.grow(second, 64));
  CHECK(second.tables[0] == Ids{0, 1, 2, 3});
  CHECK(bench.fresh[0] == Ids{0, 1, 2});
}

TEST_CASE("a block that is released twice is caught") {
  Bench bench({full(16)}, {2});
  SequenceBlocks blocks = bench.sequence({});
  CHECK(bench.grow(blocks, 32));
  SequenceBlocks copy = blocks;
  bench.manager.release(blocks, 0);
  CHECK_THROWS_WITH_AS(bench.manager.release(copy, 0), doctest::Contains("block 1 is released and has no user"), Error);
}

TEST_CASE("a block that a step in flight uses is free when the step has been collected") {
  Bench bench({full(16)}, {2});
  SequenceBlocks blocks = bench.sequence({}), next = bench.sequence({});
  CHECK(bench.grow(blocks, 32));
  bench.manager.release(blocks, 3);
  CHECK(bench.manager.num_free_blocks(0) == 0);
  CHECK(bench.manager.num_used_blocks() == 2);
  CHECK(bench.manager.will_have_more(next, 0, 1));
  bench.manager.collected(2);
  CHECK_FALSE(bench.grow(next, 1));
  bench.manager.collected(3);
  CHECK(bench.grow(next, 1));
  bench.manager.audit(std::vector<const SequenceBlocks*>{&next}, true);
}

TEST_CASE("a prefix is found block by block, and identity keeps prefixes apart") {
  Bench bench({full(4)}, {16});
  SequenceBlocks first = bench.sequence(ids(0, 11));
  CHECK(bench.compute(first, 11) == 0);
  SequenceBlocks same = bench.sequence(ids(0, 10));
  CHECK(bench.hit(same, 10).num_tokens == 8);
  CHECK(bench.hit(same, 10).tables == BlockTables{{0, 1}});
  Ids other = ids(0, 10);
  other[5] = 99;
  CHECK(bench.num_hit(other) == 4);
  CHECK(bench.num_hit(ids(0, 10), {.cache_salt = "s"}) == 0);
  CHECK(bench.num_hit(ids(0, 10), {.adapter = "s"}) == 0);
  CHECK(bench.num_hit(ids(4, 7)) == 0);  // the same tokens behind another prefix
  bench.end(first);
  CHECK(bench.manager.num_used_blocks() == 0);
  CHECK(bench.compute(same, 10) == 8);
  CHECK(bench.fresh[0] == Ids{2});  // it was not full: what holds nothing goes first
}

TEST_CASE("a prompt that is cached to its end is computed in its last token, in a copy of its last block") {
  Bench bench({full(4)}, {8});
  SequenceBlocks first = bench.sequence(ids(0, 8)), second = bench.sequence(ids(0, 8));
  bench.compute(first, 8);
  CHECK(bench.compute(second, 8) == 7);
  CHECK(bench.copies == std::vector<GroupCopies>{{0, {{1, 2}}}});
  CHECK(second.tables == BlockTables{{0, 2}});
  CHECK(bench.manager.num_shared_blocks() == 1);
  SequenceBlocks third = bench.sequence(ids(0, 8));
  CHECK(bench.hit(third, 8, /*may_copy=*/false).num_tokens == 4);
  // What this very step computes can be shared, but not copied: copies come before the step's writes.
  --bench.step_id;
  SequenceBlocks fourth = bench.sequence(ids(50, 8));
  bench.manager.take_hit(fourth, bench.manager.no_hit(), bench.step_id, bench.copies, bench.fresh);
  CHECK(bench.grow(fourth, 8));
  bench.manager.register_computed(fourth, 8, bench.step_id);
  CHECK(bench.num_hit(ids(50, 8)) == 4);
  ++bench.step_id;
  CHECK(bench.num_hit(ids(50, 8)) == 7);
}

TEST_CASE("the last blocks are evicted first, and those that a waiting sequence will use after all others") {
  Bench bench({full(4)}, {6});
  SequenceBlocks wanted = bench.sequence(ids(0, 8)), unwanted = bench.sequence(ids(100, 12));
  bench.compute(wanted, 8);
  bench.compute(unwanted, 12);
  bench.end(wanted);  // freed first: without the announcement it would be evicted first
  bench.end(unwanted);
  SequenceBlocks waiting = bench.sequence(ids(0, 9));
  bench.manager.announce(waiting);
  SequenceBlocks taker = bench.sequence({});
  CHECK(bench.grow(taker, 12));  // one block was never used
  CHECK(bench.hit(waiting, 9).num_tokens == 8);
  CHECK(bench.num_hit(ids(100, 12)) == 4);
  CHECK(bench.grow(taker, 20));
  CHECK(bench.hit(waiting, 9).num_tokens == 4);
  bench.manager.withdraw(waiting);
  bench.manager.leave(waiting);
  bench.end(taker);
  bench.manager.leave(waiting);
  bench.manager.audit({}, true);
}

TEST_CASE("a hash alone is no hit") {
  Bench bench({full(4)}, {8}, [](std::span<const std::byte>) { return BlockHash{1, 2}; });
  SequenceBlocks first = bench.sequence(ids(0, 8));
  CHECK(first.prefixes[0].path.empty());  // the root has the only hash there is
  bench.compute(first, 8);
  CHECK(bench.num_hit(ids(0, 8)) == 0);

  // Blocks that begin alike collide, roots do not.
  Bench weak({full(4)}, {8}, [](std::span<const std::byte> bytes) {
    return bytes.size() < 20 ? BlockHash{7, bytes.size()} : BlockHash{9, static_cast<uint64_t>(bytes[16])};
  });
  SequenceBlocks one = weak.sequence({5, 1, 1, 1, 6, 1, 1, 1});
  CHECK(weak.compute(one, 8) == 0);
  CHECK(weak.num_hit({5, 1, 1, 1, 6, 1, 1, 1, 8}) == 8);
  CHECK(weak.num_hit({5, 1, 1, 2, 6, 1, 1, 1, 8}) == 0);
  CHECK(weak.num_hit({6, 1, 1, 1, 8}) == 0);  // the tokens, but behind another prefix
}

TEST_CASE("a window needs the blocks that the next position sees, and all groups together the shortest hit") {
  Bench bench({full(4), sliding(4, 6)}, {16, 16});
  SequenceBlocks first = bench.sequence(ids(0, 20));
  bench.compute(first, 20);
  CHECK(bench.manager.leave_window(first, 20, 0));
  CHECK(first.tables[1] == Ids{-1, -1, -1, 3, 4});
  CHECK_FALSE(bench.manager.leave_window(first, 20, 0));
  CHECK(bench.manager.num_free_blocks(1) == 14);
  SequenceBlocks second = bench.sequence(ids(0, 18));
  PrefixHit hit = bench.hit(second, 18);
  CHECK(hit.num_tokens == 16);
  CHECK(hit.tables == BlockTables{{0, 1, 2, 3}, {-1, -1, 2, 3}});
  bench.end(first);
  SequenceBlocks taker = bench.sequence({});
  CHECK(bench.grow(taker, 44));  // 11 of 16 blocks: what was never used
  CHECK(bench.hit(second, 18).num_tokens == 16);
  CHECK(bench.grow(taker, 48));  // block 2 left the window before 3 and 4 were released
  hit = bench.hit(second, 18);
  CHECK(hit.num_tokens == 8);
  CHECK(hit.tables == BlockTables{{0, 1}, {0, 1}});
}

TEST_CASE("a block is being computed from the admission of who computes it until it is planned") {
  Bench bench({full(4)}, {16});
  SequenceBlocks first = bench.sequence(ids(0, 12)), second = bench.sequence(ids(0, 13));
  CHECK_FALSE(bench.manager.is_being_computed(second, 0));
  bench.manager.take_hit(first, bench.manager.no_hit(), 1, bench.copies, bench.fresh);
  CHECK(bench.manager.is_being_computed(second, 0));
  CHECK(bench.grow(first, 6));
  bench.manager.register_computed(first, 6, 1);
  CHECK_FALSE(bench.manager.is_being_computed(second, 0));
  CHECK(bench.manager.is_being_computed(second, 4));
  bench.manager.release(first, 0);
  CHECK_FALSE(bench.manager.is_being_computed(second, 4));
}

TEST_CASE("what is forgotten is not found again, in any group") {
  Bench bench({full(4), sliding(4, 4)}, {8, 8});
  SequenceBlocks first = bench.sequence(ids(0, 12));
  bench.compute(first, 12);
  bench.manager.leave_window(first, 12, 0);
  bench.manager.forget(first);
  bench.end(first);
  CHECK(bench.num_hit(ids(0, 12)) == 0);
}

TEST_CASE("positions can be computed again unless their block is shared or its window has passed") {
  Bench bench({full(4), sliding(4, 4)}, {16, 16});
  SequenceBlocks first = bench.sequence(ids(0, 12));
  bench.compute(first, 12);
  CHECK(bench.manager.rewind(first, 11, 10));
  CHECK(bench.num_hit(ids(0, 12)) == 8);  // the last block is going to be overwritten
  bench.manager.register_computed(first, 11, bench.step_id);
  SequenceBlocks second = bench.sequence(ids(0, 12));
  CHECK(bench.compute(second, 12) == 8);
  CHECK_FALSE(bench.manager.rewind(first, 8, 7));
  bench.manager.leave_window(second, 12, 0);
  CHECK_FALSE(bench.manager.rewind(second, 9, 8));
}

}  // namespace
}  // namespace tokenmill
