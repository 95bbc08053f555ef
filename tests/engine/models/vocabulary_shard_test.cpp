// A vocabulary spread over ranks against the whole of it on one rank.
#include "engine/models/vocabulary_shard.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <map>

#include "tests/engine/models/vocabulary_ranks.h"
#include "tests/support/fake_ops.h"
#include "tests/support/thread_group.h"

using namespace tokenmill;
using parallel::TransferKind;
using test::Bytes;
using test::Ends;
using test::HostTensor;
using test::on_ranks;
using test::Rank;
using test::result_of;
using test::SamplerRows;

namespace {

constexpr double kMasked = -INFINITY;

void append(Bytes& all, const SamplerRows& rows, int64_t num_rows, int64_t vocab) {
  const Bytes bytes = rows.bytes();
  all.insert(all.end(), bytes.begin(), bytes.end());
  for (int64_t r = 0; r < num_rows; ++r) {  // what the next step starts from
    all.push_back(static_cast<std::byte>(rows.last(r) % 251));
    if (rows.id(r) < vocab) all.push_back(static_cast<std::byte>(rows.count(r, rows.id(r)) % 251));
  }
}

struct RowSetup {
  reference::SamplerRow params;
  int32_t forced = -1;
  int64_t shortlist = 1;
};

std::vector<RowSetup> random_rows(int64_t count, int64_t vocab) {
  test::Random random(91);
  std::vector<RowSetup> rows;
  for (int64_t i = 0; i < count; ++i) {
    RowSetup row{.params = test::random_sampler_row(random, vocab)};
    if (random.index(10) == 0) row.forced = static_cast<int32_t>(random.index(vocab));
    if (random.index(3) == 0) row.params.filter = {.min_p = 0, .top_k = 0, .top_p = 1};
    const reference::Filter& f = row.params.filter;
    if (row.forced < 0) {
      row.shortlist = shortlist_capacity(static_cast<float>(row.params.temperature), static_cast<float>(f.min_p),
                                         static_cast<int32_t>(f.top_k), static_cast<float>(f.top_p));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

int64_t calls(const parallel::Communicator& tp) {
  return tp.counts()[static_cast<size_t>(TransferKind::kAllGather)].calls;
}

}  // namespace

TEST_CASE("1,000 random sets of parameters choose the same bits on 1, 2, 3, 4 and 8 ranks") {
  constexpr int64_t kVocab = 5 * kVocabTile + 300, kSets = 1000, kRows = 50;  // six tiles: of 8 ranks two have none
  Ends ends(kVocab, 16, kRows);
  test::Random random(92);
  for (int i = 0; i < 900; ++i) {  // ids with equal logits, near and far
    const int64_t to = random.index(kVocab), from = random.index(kVocab);
    for (int64_t k = 0; k < 16; ++k) ends.head.set(to, k, ends.head.get(from, k));
  }
  std::vector<RowSetup> setups = random_rows(kSets, kVocab);
  std::stable_partition(setups.begin(), setups.end(), [](const RowSetup& row) { return row.shortlist > 0; });
  const auto run = [&](Rank& rank, Bytes& all) {
    int64_t num_listed = 0, num_overflows = 0;
    for (int64_t set = 0; set < kSets; set += kRows) {
      SamplerRows rows(rank.ops(), kRows, kVocab);
      int64_t shortlist = 0;
      bool whole = false;
      for (int64_t r = 0; r < kRows; ++r) {
        const RowSetup& row = setups[static_cast<size_t>(set + r)];
        rows.set(r, row.params);
        rows.force(r, row.forced);
        rows.set_random(r, static_cast<uint64_t>(set + r) * 0x9e3779b97f4a7c15u, 100 + r);
        shortlist = std::max(shortlist, row.shortlist);
        whole = whole || row.shortlist == 0;
      }
      const int64_t before = calls(rank.tp());
      rank.choose(rows, 0, whole ? 0 : shortlist);
      num_listed += whole ? 0 : kRows;
      num_overflows += !whole && calls(rank.tp()) - before > 2 ? 1 : 0;
      append(all, rows, kRows, kVocab);
    }
    CHECK(num_listed >= kSets / 3);
    CHECK(num_listed <= kSets * 2 / 3);
    CHECK_EQ(num_overflows, 0);
  };
  const Bytes want = result_of(ends, 1, run);
  for (const int tp : {2, 3, 4, 8}) {
    CAPTURE(tp);
    CHECK(result_of(ends, tp, run) == want);
  }
}

TEST_CASE("logprobs, ranks, listed ids and prompt scores have the same bits on any number of ranks") {
  constexpr int64_t kVocab = 3 * kVocabTile + 1, kRows = kGatheredRows + 6, kWidth = 30;  // two turns
  const Ends ends(kVocab, 24, kRows, DType::kBF16);
  const auto run = [&](Rank& rank, Bytes& all) {
    SamplerRows rows(rank.ops(), kRows, kVocab);
    rows.set(1, {.temperature = 1}, {3072, 0, 1024});
    rows.set(2, {.temperature = 0.7, .filter = {.top_p = 0.9}, .presence_penalty = 0.5});
    rows.set(3, {.bias = std::vector<double>(kVocab, kMasked)});
    for (int64_t r = 0; r < kRows; ++r) rows.set_num_top(r, r == 1 ? 3 : r == 4 ? -1 : 5 * (r % 7));
    rank.choose(rows, 0, 1, kWidth);
    append(all, rows, kRows, kVocab);
    CHECK_EQ(rows.status(3), 2);
    rank.score(rows, kWidth);
    append(all, rows, kRows, kVocab);
  };
  const Bytes want = result_of(ends, 1, run);
  for (const int tp : {2, 4, 8}) CHECK(result_of(ends, tp, run) == want);
}

TEST_CASE("equal maxima give the smaller id on any number of ranks, behind biases too") {
  constexpr int64_t kVocab = 4 * kVocabTile;
  Ends ends(kVocab, 8, 3);
  ends.head.fill(-1);
  ends.normed.fill(1);
  for (const int64_t id : {1023, 1024, 3000, 4095}) {
    for (int64_t k = 0; k < 8; ++k) ends.head.set(id, k, 2);
  }
  std::vector<double> bias(kVocab, 0);
  bias[1023] = -1;
  for (const int tp : {1, 2, 3, 4}) {
    CAPTURE(tp);
    on_ranks(ends, tp, 3, [&](Rank& rank) {
      SamplerRows rows(rank.ops(), 3, kVocab);
      rows.set(1, {.bias = bias});
      rows.set(2, {.bias = bias, .masked_ids = {1024, 3000}});
      rank.choose(rows, 0, 1);
      CHECK_EQ(rows.id(0), 1023);
      CHECK_EQ(rows.id(1), 1024);
      CHECK_EQ(rows.id(2), 4095);
    });
  }
}

TEST_CASE("ids that are tied past a shortlist's room are all still drawn: the step takes whole logits") {
  constexpr int64_t kVocab = 4 * kVocabTile, kRows = 40;
  Ends ends(kVocab, 8, kRows);
  ends.normed.fill(1);
  ends.head.fill(-1);
  for (int64_t id = 2 * kVocabTile; id < 2 * kVocabTile + 100; ++id) {  // of one shard
    for (int64_t k = 0; k < 8; ++k) ends.head.set(id, k, 2);
  }
  const auto run = [&](Rank& rank, Bytes& all) {
    SamplerRows rows(rank.ops(), kRows, kVocab);
    for (int64_t r = 0; r < kRows; ++r) {
      rows.set(r, {.temperature = 1, .filter = {.top_k = 3}, .frequency_penalty = 0.25});
      rows.set_random(r, 77, r);
    }
    const int64_t before = calls(rank.tp());
    rank.choose(rows, 0, 3 + kShortlistTies);
    CHECK_EQ(calls(rank.tp()) - before, rank.tp().size() == 1 ? 0 : 4);  // partials, lists, two turns of logits
    std::map<int64_t, int> drawn;
    for (int64_t r = 0; r < kRows; ++r) {
      ++drawn[rows.id(r)];
      CHECK_EQ(rows.count(r, rows.id(r)), 1);  // counted once
    }
    CHECK(drawn.size() > 20);
    append(all, rows, kRows, kVocab);
  };
  const Bytes want = result_of(ends, 1, run);
  for (const int tp : {2, 4}) CHECK(result_of(ends, tp, run) == want);
}

TEST_CASE("a value that is not finite in another rank's tile fails that row alone, on every rank") {
  constexpr int64_t kVocab = 4 * kVocabTile;
  for (const bool is_nan : {false, true}) {
    Ends ends(kVocab, 8, 4);
    for (int64_t id = 0; id < kVocab; ++id) ends.head.set(id, 7, 0);
    for (int64_t r = 0; r < 4; ++r) {
      ends.normed.set(r, 6, 0);
      ends.normed.set(r, 7, r == 1 ? 3e38 : 0);
    }
    ends.head.set(3500, 7, 3e38);
    if (is_nan) {
      ends.head.set(3500, 6, -3e38);
      ends.normed.set(1, 6, 3e38);  // infinity - infinity
    }
    for (const int tp : {1, 2, 4}) {
      for (const int64_t shortlist : {int64_t{0}, 5 + kShortlistTies}) {
        CAPTURE(tp);
        on_ranks(ends, tp, 4, [&](Rank& rank) {
          SamplerRows rows(rank.ops(), 4, kVocab);
          rows.set(1, {.temperature = 1, .filter = {.top_k = 5}});
          rows.set(2, {.temperature = 1, .filter = {.top_k = 5}});
          rank.choose(rows, 0, shortlist);
          for (int64_t r = 0; r < 4; ++r) CHECK_EQ(rows.status(r), r == 1 ? 1 : 0);
          CHECK_EQ(rows.id(1), 0);
        });
      }
    }
  }
}

TEST_CASE("a vocabulary of 259 on 2 and 4 ranks: one holds the only tile, no id beyond it is chosen or counted") {
  constexpr int64_t kVocab = 259, kRows = 30;
  Ends ends(kVocab, 8, kRows);
  ends.head.fill(-1);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t k = 0; k < 8; ++k) ends.normed.set(r, k, 1e30);  // every real score is very negative, all are equal
  }
  for (const int tp : {1, 2, 4}) {
    CAPTURE(tp);
    on_ranks(ends, tp, kRows, [&](Rank& rank) {
      SamplerRows rows(rank.ops(), kRows, kVocab);
      for (int64_t r = 0; r < kRows; ++r) {
        if (r > 0) rows.set(r, {.temperature = 1, .filter = {.top_k = r % 2 == 0 ? 0 : 256}});
        rows.set_random(r, 5, r);
        rows.set_num_top(r, 5);
      }
      for (const int64_t width : {-1, 5}) {
        rank.choose(rows, 0, kShortlistMaxTopK + kShortlistTies, width);
        for (int64_t r = 0; r < kRows; ++r) {
          CHECK(rows.id(r) >= 0);
          CHECK(rows.id(r) < kVocab);
          CHECK(rows.logprob(r) == doctest::Approx(-std::log(259.0)).epsilon(1e-6));
        }
        CHECK_EQ(rows.id(0), 0);
      }
    });
  }
}

TEST_CASE("a choice moves the bytes that the formulas say, by what its rows need") {
  constexpr int64_t kVocab = 5 * kVocabTile + 300, kRows = 7;
  const Ends ends(kVocab, 8, kRows);
  for (const int tp : {2, 3, 8}) {
    CAPTURE(tp);
    on_ranks(ends, tp, kRows, [&](Rank& rank) {
      const parallel::TransferCount& count = rank.tp().counts()[static_cast<size_t>(TransferKind::kAllGather)];
      const auto received = [&](const std::function<void()>& work) {
        const int64_t before = count.received_bytes;
        work();
        return count.received_bytes - before;
      };
      SamplerRows rows(rank.ops(), kRows, kVocab);
      const int64_t others = tp - 1, most_tiles = (6 + tp - 1) / tp;
      const int64_t most_ids = most_tiles * kVocabTile;
      const int64_t partials = others * kRows * 24 * most_tiles, logits = others * kRows * 4 * most_ids;
      CHECK_EQ(received([&] { rank.choose(rows, 0, 1); }), partials + others * kRows * 4 * 4);
      CHECK_EQ(received([&] { rank.choose(rows, 0, 48); }), partials + others * kRows * 4 * (1 + 3 * 48));
      CHECK_EQ(received([&] { rank.choose(rows, 0, 0); }), partials + logits);
      for (int64_t r = 0; r < kRows; ++r) rows.set_num_top(r, 2);
      CHECK_EQ(received([&] { rank.choose(rows, 0, 1, 2); }), partials + logits);
      CHECK_EQ(received([&] { rank.score(rows, 2); }), partials + logits);
      for (const TransferKind kind : {TransferKind::kExchange, TransferKind::kBroadcast, TransferKind::kSend}) {
        CHECK_EQ(rank.tp().counts()[static_cast<size_t>(kind)].calls, 0);
      }
    });
  }
}

TEST_CASE("the head's memory: a rank's own logits of all rows, and few rows of everyone's") {
  ModelConfig config;
  config.vocab_size = 40 * kVocabTile;
  const auto bytes = [&](int tp, int64_t rows) {
    ModelShard shard;
    shard.grid.tp_size = tp;
    Carver carver(nullptr, true);
    carve_head(config, shard, rows, carver);
    return carver.num_bytes();
  };
  const auto logits = [&](int64_t rows) { return rows * config.vocab_size * 4; };
  const auto partials = [&](int64_t rows) { return rows * 40 * 24; };
  constexpr int64_t kRows = 256, kListBytes = 4 * shortlist_words(kShortlistMaxTopK + kShortlistTies);
  constexpr int64_t kAlignment = 16 * 64;  // of the buffers that are taken
  CHECK(bytes(1, kRows) <= logits(kRows) + partials(kRows) + kAlignment);
  for (const int tp : {2, 4, 8}) {
    CAPTURE(tp);
    const int64_t want = logits(kRows) / tp + logits(kGatheredRows) + 2 * partials(kRows) + tp * kRows * kListBytes;
    CHECK(bytes(tp, kRows) >= want);
    CHECK(bytes(tp, kRows) <= want + kAlignment);
    CHECK(bytes(tp, 4) < 2 * (logits(4) + tp * 4 * kListBytes));  // no more turns than rows
  }
}

TEST_CASE("embeddings have the table's bits on any number of ranks, moved in one transfer or in two") {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t tokens : {1, 13, 300}) {
      constexpr int64_t kHidden = 500, kVocab = 700;
      Ends ends(kVocab, kHidden, 1, dtype);
      ends.table.set(5, 5, -0.0);
      const auto run = [&](Rank& rank, Bytes& all) {
        HostTensor out(dtype, {tokens, kHidden}), ids(DType::kI32, {tokens}), last(DType::kI32, {2});
        last.set(0, 0, 699);
        last.set(0, 1, 5);
        for (int64_t t = 0; t < tokens; ++t) ids.set(0, t, static_cast<double>(t % 7 == 3 ? -2 : t * 97 % kVocab));
        ids.set(0, 0, -1);
        const int64_t floats = RowParallelLinear::part_floats(rank.shard().grid, tokens, kHidden);
        HostTensor parts(DType::kF32, {floats}),
            block_out(dtype, {tokens + RowParallelLinear::padding_rows(rank.shard().grid), kHidden});
        rank.vocabulary().embed(rank.ops(), out, ids, last, {parts, block_out});
        rank.ops().stream().synchronize();
        for (int64_t i = 0; i < kHidden; ++i) CHECK_EQ(out.get(0, i), ends.table.get(699, i));
        all = out.bytes();
        const auto& exchanges = rank.tp().counts()[static_cast<size_t>(TransferKind::kExchange)];
        CHECK_EQ(exchanges.calls, rank.tp().size() > 2 && tokens * kHidden * dtype_size(dtype) > 256 << 10 ? 1 : 0);
      };
      const Bytes want = result_of(ends, 1, run);
      for (const int tp : {2, 3, 8}) {
        CAPTURE(tp);
        CHECK(result_of(ends, tp, run) == want);
      }
    }
  }
}

TEST_CASE("a device that runs its work late, and sums in f64, chooses the same ids on two ranks") {
  constexpr int64_t kVocab = kVocabTile + 500, kRows = 24;
  const Ends ends(kVocab, 8, kRows);
  const auto run = [&](int tp) {
    std::vector<std::vector<int64_t>> ids(static_cast<size_t>(tp));
    test::ThreadGroup group(tp);
    group.run([&](int r) {
      test::FakeOps ops;
      const auto communicator = group.communicator(r, ops.stream());
      Rank rank(ends, ops, *communicator, kRows);
      test::Random random(94);
      for (const int64_t shortlist : {int64_t{0}, 20 + kShortlistTies}) {
        SamplerRows rows(ops, kRows, kVocab);
        for (int64_t row = 0; row < kRows; ++row) {
          reference::SamplerRow params = test::random_sampler_row(random, kVocab);
          params.filter = {.min_p = row % 5 == 0 ? 0.125 : 0, .top_k = row % 3 == 0 ? 0 : row % 20 + 1, .top_p = 1};
          if (params.filter.top_k == 0) params.filter.min_p = 0;
          rows.set(row, params);
          rows.set_random(row, 3, row);
          if (row == 7) rows.force(row, kVocab - 1);
        }
        rank.choose(rows, 0, shortlist);
        for (int64_t row = 0; row < kRows; ++row) ids[static_cast<size_t>(r)].push_back(rows.id(row));
      }
    });
    for (const auto& of_rank : ids) CHECK(of_rank == ids[0]);
    return ids[0];
  };
  const auto want = run(1);
  CHECK(run(2) == want);
  CHECK(run(4) == want);
}
