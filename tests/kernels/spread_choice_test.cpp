// A choice from shards of the vocabulary has every bit of the choice from the whole.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "tests/support/sampler.h"

using namespace tokenmill;
using reference::SamplerRow;
using test::random_logits;
using test::Sampler;

namespace {

constexpr int64_t kVocab = 2600;  // two tiles and a part of a third
const std::vector<int> kShards = {1, 2, 3, 4, 8};

int64_t capacity_of(const SamplerRow& row) {
  return shortlist_capacity(static_cast<float>(row.temperature), static_cast<float>(row.filter.min_p),
                            static_cast<int32_t>(row.filter.top_k), static_cast<float>(row.filter.top_p));
}

/// The bits of a choice and of what it leaves in the tables.
struct Choice {
  std::vector<std::byte> picked;
  std::vector<int64_t> last, counts;
  bool operator==(const Choice&) const = default;
};

Choice choice_of(const Sampler& sampler, int64_t num_rows) {
  Choice out{sampler.bytes(), {}, {}};
  for (int64_t r = 0; r < num_rows; ++r) {
    out.last.push_back(sampler.last(r));
    out.counts.push_back(sampler.count(r, sampler.id(r)));
  }
  return out;
}

/// The shard's columns of a sampler's logits; the partials stay those of the whole vocabulary.
HeadTiles shard_of(const HeadTiles& whole, const VocabShards& shards, int64_t shard) {
  HeadTiles out = whole;
  out.logits = whole.logits.slice_cols(shards.first_id(shard), shards.num_ids(shard));
  return out;
}

/// As the ranks of a group choose from short lists; false when a list had no room.
bool pick_from_lists(Ops& ops, Sampler& sampler, int64_t num_rows, int num_shards, int64_t capacity) {
  const VocabShards shards{kVocab, num_shards};
  const int64_t words = shortlist_words(std::min(capacity, shards.most_ids()));
  test::VisibleVector<int32_t> lists(static_cast<size_t>(num_shards * num_rows * words), -7);
  for (int shard = 0; shard < num_shards; ++shard) {
    const TensorView list(lists.data() + shard * num_rows * words, DType::kI32, {num_rows, words});
    ops.shortlist(list, shard_of(sampler.tiles(), shards, shard), shards.first_id(shard), kVocab, sampler.step(),
                  sampler.tables());
  }
  const TensorView all(lists.data(), DType::kI32, {num_shards, num_rows, words});
  if (!ops.shortlists_fit(all)) return false;
  HeadTiles tiles = sampler.tiles();
  tiles.logits = {};
  ops.pick_listed(sampler.picked(), tiles, all, kVocab, sampler.step(), sampler.tables());
  ops.stream().synchronize();
  return true;
}

/// As they choose from gathered rows of logits.
void pick_from_shards(Ops& ops, Sampler& sampler, int64_t num_rows, int num_shards) {
  const VocabShards shards{kVocab, num_shards};
  test::VisibleVector<float> gathered(static_cast<size_t>(num_shards * num_rows * shards.most_ids()), NAN);
  for (int shard = 0; shard < num_shards; ++shard) {
    const TensorView own = shard_of(sampler.tiles(), shards, shard).logits;
    for (int64_t r = 0; r < num_rows && own.cols() > 0; ++r)
      std::memcpy(gathered.data() + (shard * num_rows + r) * shards.most_ids(), own.row<float>(r),
                  static_cast<size_t>(own.cols()) * sizeof(float));
  }
  HeadTiles tiles = sampler.tiles();
  tiles.logits = TensorView(gathered.data(), DType::kF32, {num_shards, num_rows, shards.most_ids()});
  ops.pick(sampler.picked(), tiles, kVocab, sampler.step(), sampler.tables());
  ops.stream().synchronize();
}

/// Rows with their logits, ready to choose.
struct Batch {
  std::vector<std::vector<double>> logits;
  std::vector<SamplerRow> rows;
  std::vector<int32_t> forced;  // -1: not

  int64_t size() const { return static_cast<int64_t>(rows.size()); }
  void add(std::vector<double> row_logits, SamplerRow row, int32_t forced_id = -1) {
    logits.push_back(std::move(row_logits));
    rows.push_back(std::move(row));
    forced.push_back(forced_id);
  }
  int64_t capacity() const {
    int64_t most = 0;
    for (const SamplerRow& row : rows) most = std::max(most, capacity_of(row));
    return most;
  }
  Sampler sampler(Ops& ops) const {
    Sampler out(ops, size(), kVocab, kVocab);
    for (int64_t r = 0; r < size(); ++r) {
      const auto i = static_cast<size_t>(r);
      out.set_logits(r, logits[i]);
      out.set(r, rows[i]);
      out.set_random(r, static_cast<uint64_t>(r + 1) * 0x9e3779b97f4a7c15u, 50 + r);
      if (forced[i] >= 0) out.force(r, forced[i]);
    }
    out.head();
    return out;
  }
};

/// By whole rows, and by lists where all rows allow them.
void check_batch(Ops& ops, const Batch& batch, const std::vector<int>& numbers_of_shards, bool lists_fit = true) {
  Sampler whole = batch.sampler(ops);
  whole.pick();
  const Choice want = choice_of(whole, batch.size());
  bool listed = true;
  for (const SamplerRow& row : batch.rows) listed = listed && capacity_of(row) > 0;
  for (const int num_shards : numbers_of_shards) {
    CAPTURE(num_shards);
    Sampler gathered = batch.sampler(ops);
    pick_from_shards(ops, gathered, batch.size(), num_shards);
    CHECK(choice_of(gathered, batch.size()) == want);
    if (!listed) continue;
    Sampler lists = batch.sampler(ops);
    const bool fit = pick_from_lists(ops, lists, batch.size(), num_shards, batch.capacity());
    CHECK(fit == lists_fit);
    if (fit) CHECK(choice_of(lists, batch.size()) == want);
  }
}

}  // namespace

TEST_CASE("random sets of parameters choose the same from shards as from the whole vocabulary") {
  constexpr int64_t kRows = 50;
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    const int64_t num_sets = test::is_slow(*ops) ? 150 : 1000;
    test::Random random(91);
    Batch listed, whole;
    int num_batches = 0;
    for (int64_t set = 0; set < num_sets; ++set) {
      SamplerRow row = test::random_sampler_row(random, kVocab);
      if (row.filter.top_k > 300) row.filter.top_k = kShortlistMaxTopK;
      const auto logits = random_logits(kVocab, static_cast<uint64_t>(7000 + set), random.uniform(0.5, 12));
      const int32_t forced = random.index(20) == 0 ? static_cast<int32_t>(random.index(kVocab)) : -1;
      (capacity_of(row) > 0 ? listed : whole).add(logits, row, forced);
      for (Batch* batch : {&listed, &whole}) {
        if (batch->size() < kRows) continue;
        check_batch(*ops, *batch, {kShards[static_cast<size_t>(num_batches++) % kShards.size()]});
        *batch = {};
      }
    }
  }
}

TEST_CASE("equal maxima in several shards give the smallest id, ties of a top-k stay, too many ask for whole rows") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    std::vector<double> flat(kVocab, -2.5), peaks = random_logits(kVocab, 3, 1);
    for (const size_t id : {300, 1023, 1024, 2599}) peaks[id] = 4;
    Batch greedy;
    greedy.add(flat, {.temperature = 0});
    greedy.add(peaks, {.temperature = 0});
    greedy.add(peaks, {.temperature = 0}, 2000);
    greedy.add(flat, {.temperature = 1});
    check_batch(*ops, greedy, kShards);
    Sampler sampler = greedy.sampler(*ops);
    REQUIRE(pick_from_lists(*ops, sampler, 4, 3, greedy.capacity()));
    CHECK(sampler.id(0) == 0);
    CHECK(sampler.id(1) == 300);
    CHECK(sampler.id(2) == 2000);

    Batch few;  // four ids tie for the second place
    few.add(peaks, {.temperature = 1, .filter = {.top_k = 2}});
    check_batch(*ops, few, kShards);
    Batch many;  // all do
    many.add(flat, {.temperature = 1, .filter = {.top_k = 2}});
    check_batch(*ops, many, {1, 3}, /*lists_fit=*/false);
  }
}

TEST_CASE("what one shard holds decides for all: NaN, an only allowed id, no id at all, very negative logits") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    Batch batch;
    std::vector<double> logits = random_logits(kVocab, 5, 3), nan = logits, low = logits;
    nan[2590] = NAN;
    for (double& l : low) l = l - 3e38 < -3.4e38 ? -3.4e38 : l - 3e38;
    std::vector<double> only(kVocab, -INFINITY), none(kVocab, -INFINITY);
    only[1500] = 0;
    for (const double temperature : {0.0, 1.0}) {
      batch.add(nan, {.temperature = temperature});
      batch.add(logits, {.temperature = temperature, .bias = only});
      batch.add(logits, {.temperature = temperature, .bias = none});
      batch.add(low, {.temperature = temperature});
      batch.add(logits, {.temperature = temperature, .masked_ids = {0, 1023, 1024, 2599}});
    }
    check_batch(*ops, batch, kShards);
    Sampler sampler = batch.sampler(*ops);
    REQUIRE(pick_from_lists(*ops, sampler, batch.size(), 8, 1));
    CHECK(sampler.status(0) == 1);
    CHECK(sampler.id(1) == 1500);
    CHECK(sampler.status(2) == 2);
    CHECK(sampler.id(3) < kVocab);
    CHECK(std::isfinite(sampler.logprob(3)));
  }
}

TEST_CASE("rows that need few ids of a shard are told from those that need all") {
  CHECK(shortlist_capacity(0, 0.5f, 3, 0.1f) == 1);  // greedy: filters do nothing
  CHECK(shortlist_capacity(1, 0, 0, 1) == 1);
  CHECK(shortlist_capacity(1, 0, 20, 0.9f) == 20 + kShortlistTies);
  CHECK(shortlist_capacity(1, 0, 257, 1) == 0);
  CHECK(shortlist_capacity(1, 0, 0, 0.9f) == 0);
  CHECK(shortlist_capacity(1, 0.1f, 0, 1) == 0);
}
