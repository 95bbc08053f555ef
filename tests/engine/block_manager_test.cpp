#include "engine/block_manager.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

using Ids = std::vector<int32_t>;

struct Pool {
  explicit Pool(std::vector<int64_t> num_blocks, std::vector<int64_t> block_sizes)
      : manager(specs(block_sizes), num_blocks), appended(num_blocks.size()), fresh(num_blocks.size()) {}
  static std::vector<KvSpec> specs(const std::vector<int64_t>& block_sizes) {
    std::vector<KvSpec> out;
    for (const int64_t block_size : block_sizes) out.push_back({.block_size = block_size});
    return out;
  }
  bool grow(BlockTables& tables, int64_t num_tokens) {
    for (Ids& list : appended) list.clear();
    for (Ids& list : fresh) list.clear();
    return manager.grow(tables, num_tokens, appended, fresh);
  }
  BlockManager manager;
  BlockTables appended, fresh;
};

TEST_CASE("a table grows by whole blocks, in ascending ids, and only when a position needs one") {
  Pool pool({4}, {16});
  BlockTables tables(1);
  CHECK(pool.grow(tables, 1));
  CHECK(pool.appended[0] == Ids{0});
  CHECK(pool.grow(tables, 16));
  CHECK(pool.appended[0].empty());
  CHECK(pool.grow(tables, 33));
  CHECK(pool.appended[0] == Ids{1, 2});
  CHECK(pool.fresh[0].empty());
  CHECK(tables[0] == Ids{0, 1, 2});
  CHECK(pool.manager.num_used_blocks() == 3);
  CHECK(pool.manager.num_free_blocks(0) == 1);
}

TEST_CASE("growth that one group cannot serve changes no group") {
  Pool pool({4, 2}, {16, 16});
  BlockTables tables(2);
  CHECK(pool.grow(tables, 32));
  CHECK_FALSE(pool.grow(tables, 33));
  CHECK(pool.appended == BlockTables(2));
  CHECK(tables == BlockTables{{0, 1}, {0, 1}});
  CHECK(pool.manager.num_free_blocks(0) == 2);
  CHECK(pool.manager.num_used_blocks() == 4);
  CHECK(pool.manager.num_total_blocks() == 6);
}

TEST_CASE("groups count in their own block size") {
  Pool pool({8, 8}, {16, 32});
  BlockTables tables(2);
  CHECK(pool.grow(tables, 65));
  CHECK(tables == BlockTables{{0, 1, 2, 3, 4}, {0, 1, 2}});
  CHECK(pool.manager.num_blocks_for(1, 64) == 2);
  CHECK(pool.manager.num_blocks_for(1, 0) == 0);
}

TEST_CASE("released blocks come back in ascending order and are reported as recycled, once each time") {
  Pool pool({4}, {16});
  BlockTables first(1), second(1);
  CHECK(pool.grow(first, 48));
  pool.manager.release(first);
  CHECK(first[0].empty());
  CHECK(pool.manager.num_used_blocks() == 0);
  CHECK(pool.grow(second, 64));
  CHECK(second[0] == Ids{0, 1, 2, 3});
  CHECK(pool.fresh[0] == Ids{0, 1, 2});
}

TEST_CASE("a block that is released twice is caught") {
  Pool pool({2}, {16});
  BlockTables tables(1);
  CHECK(pool.grow(tables, 32));
  BlockTables copy = tables;
  pool.manager.release(tables);
  CHECK_THROWS_WITH_AS(pool.manager.release(copy), doctest::Contains("block 1 of group 0 is released and has no user"),
                       Error);
}

}  // namespace
}  // namespace tokenmill
