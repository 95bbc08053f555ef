#include "kernels/vocab_shards.h"

#include <doctest/doctest.h>

#include "tests/support/sampler.h"

using namespace tokenmill;
using test::HostTensor;

TEST_CASE("shards of a vocabulary are whole tiles in order, as equal as they come, and cover it") {
  for (const int64_t vocab : {1, 259, 1024, 1025, 5420, 151936}) {
    for (const int64_t ranks : {1, 2, 3, 4, 8, 24}) {
      CAPTURE(vocab);
      CAPTURE(ranks);
      const VocabShards shards{vocab, ranks};
      CHECK_EQ(shards.first_id(0), 0);
      CHECK_EQ(shards.first_id(ranks), vocab);
      int64_t ids = 0, most_tiles = 0, most_ids = 0;
      for (int64_t p = 0; p < ranks; ++p) {
        CHECK(shards.num_tiles(p) >= shards.num_tiles() / ranks);
        if (shards.num_ids(p) > 0) CHECK_EQ(shards.first_id(p) % kVocabTile, 0);
        for (int64_t tile = shards.first_tile(p); tile < shards.first_tile(p + 1); ++tile) {
          CHECK_EQ(shards.shard_of(tile), p);
        }
        ids += shards.num_ids(p);
        most_tiles = std::max(most_tiles, shards.num_tiles(p));
        most_ids = std::max(most_ids, shards.num_ids(p));
      }
      CHECK_EQ(ids, vocab);
      CHECK_EQ(shards.most_tiles(), most_tiles);
      CHECK_EQ(shards.most_ids(), most_ids);
    }
  }
}

TEST_CASE("operations on shards say what does not fit; a row that needs whole logits is not listed") {
  Ops& ops = *test::backends().front();
  test::Sampler sampler(ops, 2, 1100, 1100);
  for (int64_t r = 0; r < 2; ++r) sampler.set_logits(r, test::random_logits(1100, 95, 3));
  sampler.set(1, {.temperature = 1, .filter = {.top_p = 0.5}});
  sampler.head();
  HostTensor list(DType::kI32, {2, shortlist_words(4)}), ragged(DType::kI32, {2, 12}), words(DType::kI32, {2, 6, 2, 1}),
      lists(DType::kI32, {3, 1, shortlist_words(4)}), logits(DType::kF32, {2, 2, 100});
  HeadTiles tiles = sampler.tiles();
  const auto shortlist = [&](const TensorView& to, int64_t first_id) {
    ops.shortlist(to, tiles, first_id, 1100, sampler.step(), sampler.tables());
  };
  CHECK_THROWS_WITH_AS(shortlist(ragged, 0), doctest::Contains("list int32 [2, 12] for float32 [2, 1100]"), Error);
  CHECK_THROWS_WITH_AS(shortlist(list, 1024),
                       "shortlist: logits float32 [2, 1100] from id 1024 on are no shard of a vocabulary of 1100",
                       Error);
  CHECK_THROWS_WITH_AS(ops.pick_listed(sampler.picked(), tiles, lists, 1100, sampler.step(), sampler.tables()),
                       "pick_listed: lists int32 [3, 1, 13] do not match max float32 [2, 2] of a vocabulary of 1100",
                       Error);
  CHECK_THROWS_WITH_AS(ops.join_tiles(tiles, words, 5000),
                       doctest::Contains("gathered int32 [2, 6, 2, 1] does not hold"), Error);
  CHECK_NOTHROW(ops.join_tiles(tiles, words, 1100));
  sampler.head();
  shortlist(list, 0);
  CHECK_THROWS_WITH_AS(ops.stream().synchronize(), doctest::Contains("row 1 with top-k 0 needs whole logits"), Error);
  tiles.logits = logits;
  CHECK_THROWS_WITH_AS(
      ops.pick(sampler.picked(), tiles, 1100, sampler.step(), sampler.tables()),
      "pick: logits float32 [2, 2, 100] do not hold a vocabulary of 1100 in 2 shards; expected float32 "
      "[2, rows, at least 1024]",
      Error);
}
