#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/backends.h"
#include "tests/support/reference.h"
#include "tests/support/sampler.h"
#include "tests/support/tolerance.h"

using namespace tokenmill;
using test::HostTensor;
using test::random_logits;
using test::Sampler;

namespace {

struct Params {
  float temperature = 0, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  operator reference::SamplerRow() const {
    return {.temperature = temperature, .filter = {.min_p = min_p, .top_k = top_k, .top_p = top_p}};
  }
};

/// Rows of one slot each, nothing forced, nothing masked.
struct PlainRows {
  PlainRows(int64_t rows, bool one_slot)
      : slots(DType::kI32, {rows}), forced(DType::kI32, {rows}), offsets(DType::kI32, {rows + 1}) {
    for (int64_t r = 0; r < rows; ++r) slots.set(0, r, one_slot ? 0 : static_cast<double>(r));
    forced.fill(-1);
    offsets.fill(0);
  }
  LogitsRows view(int64_t rows) const {
    return {slots.view().slice_rows(0, rows), slots.view().slice_rows(0, rows), forced.view().slice_rows(0, rows),
            offsets.view().slice_rows(0, rows + 1), slots.view().slice_rows(0, 0)};
  }
  HostTensor slots, forced, offsets;
};

}  // namespace

TEST_CASE("lm_head_tiles gives the product and each tile's maximum, first argmax and sums") {
  constexpr int64_t kVocab = 2500, kRows = 5;
  for (Ops* ops : test::backends()) {
    for (const auto& [dtype, kHidden] :
         {std::pair<DType, int64_t>{DType::kF32, 40}, {DType::kBF16, 40}, {DType::kF32, 256}, {DType::kBF16, 256}}) {
      CAPTURE(to_string(dtype));
      test::Random random(61);
      HostTensor hidden(dtype, {kRows, kHidden}), w(dtype, {kVocab, kHidden}), logits(DType::kF32, {kRows, kVocab}, 1);
      HostTensor max(DType::kF32, {kRows, 3}), argmax(DType::kI32, {kRows, 3}), sum(DType::kF32, {kRows, 3}),
          sum_t(DType::kF32, {kRows, 3}), bad(DType::kI32, {kRows, 3}), adjusted(DType::kF32, {kRows, 3}),
          temperature(DType::kF32, {kRows});
      const PlainRows rows(kRows, false);
      hidden.fill_random(random);
      w.fill_random(random);
      for (int64_t r = 0; r < kRows; ++r) {
        temperature.set(0, r, r == 0 ? 0 : 0.5 * static_cast<double>(r));
      }
      SamplingTables tables;
      tables.temperature = temperature;
      const test::TestLinear head(*ops, w);
      constexpr int64_t kFirst = 4096, kLimit = kFirst + 2300;  // the last 200 ids are padding
      ops->lm_head_tiles({logits, max, sum, adjusted, argmax, sum_t, bad}, hidden, head.get(), kFirst, kLimit,
                         rows.view(kRows), tables);
      ops->stream().synchronize();
      CHECK_EQ(test::differences(logits.values(), reference::linear(hidden.values(), w.values(), kHidden, {}, {}),
                                 test::tolerance(DType::kF32)),
               "");
      for (int64_t r = 0; r < kRows; ++r) {
        const double t = r == 0 ? 1 : temperature.get(0, r);
        for (int64_t tile = 0; tile < 3; ++tile) {
          const int64_t begin = tile * kVocabTile, end = std::min<int64_t>(2300, begin + kVocabTile);
          double top = -INFINITY, total = 0, total_t = 0;
          int64_t best = 0;
          for (int64_t i = begin; i < end; ++i) {
            if (logits.get(r, i) > top) {
              top = logits.get(r, i);
              best = i;
            }
          }
          for (int64_t i = begin; i < end; ++i) {
            total += std::exp(logits.get(r, i) - top);
            total_t += std::exp((logits.get(r, i) - top) / t);
          }
          CHECK_EQ(max.get(r, tile), top);
          CHECK_EQ(adjusted.get(r, tile), top);
          CHECK_EQ(argmax.get(r, tile), kFirst + best);
          CHECK(sum.get(r, tile) == doctest::Approx(total).epsilon(1e-5));
          CHECK(sum_t.get(r, tile) == doctest::Approx(total_t).epsilon(1e-5));
          CHECK_EQ(bad.get(r, tile), 0);
        }
      }
    }
  }
}

TEST_CASE("the head's tiles and picks have the same bits in any batch and with any number of threads") {
  constexpr int64_t kVocab = 3000, kHidden = 33, kRows = 14;
  for (const std::string& isa : test::cpu_isas()) {
    std::vector<std::byte> want;
    for (const int threads : {1, 2, 3}) {
      const auto ops = test::cpu_backend(isa, threads);
      test::Random random(62);
      HostTensor hidden(DType::kBF16, {kRows, kHidden}), w(DType::kBF16, {kVocab, kHidden}),
          temperature(DType::kF32, {1});
      const PlainRows plain(kRows, true);
      hidden.fill_random(random);
      w.fill_random(random);
      temperature.fill(0.7);
      SamplingTables tables;
      tables.temperature = temperature;
      const test::TestLinear head(*ops, w);
      const auto run = [&](int64_t begin, int64_t rows) {
        HostTensor logits(DType::kF32, {rows, kVocab}), max(DType::kF32, {rows, 3}), argmax(DType::kI32, {rows, 3}),
            sum(DType::kF32, {rows, 3}), sum_t(DType::kF32, {rows, 3}), bad(DType::kI32, {rows, 3}),
            adjusted(DType::kF32, {rows, 3});
        ops->lm_head_tiles({logits, max, sum, adjusted, argmax, sum_t, bad}, hidden.view().slice_rows(begin, rows),
                           head.get(), 0, kVocab, plain.view(rows), tables);
        ops->stream().synchronize();
        std::vector<std::byte> last_row;  // of every output
        for (const HostTensor* t : {&logits, &max, &sum, &adjusted, &argmax, &sum_t, &bad}) {
          const auto bytes = t->bytes();
          last_row.insert(last_row.end(), bytes.end() - static_cast<std::ptrdiff_t>(bytes.size()) / rows, bytes.end());
        }
        return last_row;
      };
      for (const int64_t rows : {1, 2, 7, 14}) {
        const auto got = run(kRows - rows, rows);
        if (want.empty()) want = got;
        CHECK(got == want);
      }
    }
  }
}

TEST_CASE("greedy takes the largest logit, the smallest id among equals, across tiles, never padding") {
  for (Ops* ops : test::backends()) {
    Sampler sampler(*ops, 3, 1100, 1200);
    auto logits = random_logits(1200, 63, 1);
    for (int64_t i = 1100; i < 1200; ++i) logits[static_cast<size_t>(i)] = 50;  // padding looks best
    logits[40] = logits[700] = logits[1090] = 5;
    sampler.set_logits(0, logits);
    for (double& l : logits) l -= l < 50 ? 1e6 : 0;  // every real score very negative
    sampler.set_logits(1, logits);
    logits.assign(1200, 0);
    sampler.set_logits(2, logits);
    sampler.run();
    CHECK_EQ(sampler.id(0), 40);
    CHECK_EQ(sampler.id(1), 40);
    CHECK_EQ(sampler.id(2), 0);
    CHECK(sampler.logprob(2) == doctest::Approx(-std::log(1100.0)).epsilon(1e-6));
    for (int64_t r = 0; r < 3; ++r) {
      CHECK_EQ(sampler.status(r), 0);
      CHECK_EQ(sampler.last(r), sampler.id(r));
    }
  }
}

TEST_CASE("a NaN or an infinite logit marks its row alone; one in the padding does not matter") {
  for (Ops* ops : test::backends()) {
    for (const double bad : {std::nan(""), double{INFINITY}, -double{INFINITY}}) {
      Sampler sampler(*ops, 2, 20, 33);
      const auto logits = random_logits(33, 64, 1);
      sampler.set_logits(0, logits);
      sampler.set_logits(1, logits);
      sampler.head();
      const HeadTiles tiles = sampler.tiles();
      CHECK_EQ(HostTensor::get_at(tiles.non_finite, 0, 0), 0);
      // Through the head an infinite hidden state makes every product NaN; the kernel itself is asked here.
      sampler.set_logits(0, std::vector<double>(33, bad));
      sampler.run();
      CHECK_EQ(sampler.status(0), 1);
      CHECK_EQ(sampler.id(0), 0);
      CHECK_EQ(sampler.last(0), 0);
      CHECK_EQ(sampler.status(1), 0);
      CHECK_EQ(sampler.id(1), std::max_element(logits.begin(), logits.begin() + 20) - logits.begin());
    }
  }
}

TEST_CASE("extreme temperatures, top-p 0, top-k past the vocabulary and min-p 1 choose what they must") {
  const std::vector<double> three = {10.0, 9.5, -3.0};
  for (Ops* ops : test::backends()) {
    const Params params[] = {
        {.temperature = 1e-4f},         {.temperature = 1e-30f},
        {.temperature = 1e-40f},        {.temperature = 1, .top_p = 0},
        {.temperature = 1, .min_p = 1}, {.temperature = 1e-30f, .top_p = 0.9f, .min_p = 0.1f, .top_k = 2}};
    constexpr int64_t kRows = std::size(params);
    Sampler sampler(*ops, kRows, 3, 3);
    for (int64_t r = 0; r < kRows; ++r) {
      sampler.set_logits(r, three);
      sampler.set(r, params[r]);
    }
    for (uint64_t key = 0; key < 50; ++key) {
      for (int64_t r = 0; r < kRows; ++r) sampler.set_random(r, key, r);
      sampler.run();
      for (int64_t r = 0; r < kRows; ++r) {
        CAPTURE(r);
        CHECK_EQ(sampler.id(r), 0);
        CHECK_EQ(sampler.status(r), 0);
        CHECK(sampler.logprob(r) == doctest::Approx(std::log(reference::softmax(three, 1)[0])).epsilon(1e-5));
      }
    }
    Sampler tied(*ops, 2, 4, 4);
    tied.set_logits(0, {1, 7, 7, 6.9999});
    tied.set(0, Params{.temperature = 1, .min_p = 1});
    tied.set_logits(1, {1, 7, 7, 6.9999});
    tied.set(1, Params{.temperature = 1, .top_k = 1});  // ties of the largest stay
    bool seen[2][4] = {};
    for (uint64_t key = 0; key < 100; ++key) {
      for (int64_t r = 0; r < 2; ++r) tied.set_random(r, key, 5);
      tied.run();
      for (int64_t r = 0; r < 2; ++r) seen[r][tied.id(r)] = true;
    }
    for (const auto& row : seen) {
      CHECK_FALSE(row[0]);
      CHECK(row[1]);
      CHECK(row[2]);
      CHECK_FALSE(row[3]);
    }
    Sampler wide(*ops, 2, 30, 30);  // top-k 1000 is no top-k: the same draw
    for (int64_t r = 0; r < 2; ++r) wide.set_logits(r, random_logits(30, 65, 2));
    wide.set(0, {.temperature = 1});
    wide.set(1, Params{.temperature = 1, .top_k = 1000});
    for (uint64_t key = 0; key < 100; ++key) {
      for (int64_t r = 0; r < 2; ++r) wide.set_random(r, key, 5);
      wide.run();
      CHECK_EQ(wide.id(0), wide.id(1));
    }
  }
}

TEST_CASE("a draw is the inverse CDF in ascending id of the one uniform of its key and the next position") {
  for (Ops* ops : test::backends()) {
    const auto logits = random_logits(2100, 66, 3);
    const Params all[] = {
        {.temperature = 0.8f}, {.temperature = 1.5f, .top_p = 0.9f}, {.temperature = 1, .min_p = 0.05f, .top_k = 40}};
    Sampler sampler(*ops, 3, 2100, 2100);
    std::vector<reference::Values> p;
    for (int64_t r = 0; r < 3; ++r) {
      sampler.set_logits(r, logits);
      sampler.set(r, all[r]);
      p.push_back(reference::filtered_softmax(logits, all[r].temperature, {all[r].min_p, all[r].top_k, all[r].top_p}));
    }
    for (int64_t position = 0; position < 100; ++position) {
      for (int64_t r = 0; r < 3; ++r) sampler.set_random(r, 0xfedcba9876543210u, position);
      sampler.run();
      const double u = uniform(0xfedcba9876543210u, position + 1);
      for (size_t r = 0; r < 3; ++r) {
        double sum = 0;
        int64_t want = 0;
        bool border = false;
        for (size_t i = 0; i < p[r].size(); ++i) {
          if (p[r][i] <= 0) continue;
          sum += p[r][i];
          want = static_cast<int64_t>(i);
          border |= std::abs(sum - u) < 1e-5;  // f32 weights may fall on the other side
          if (sum > u) break;
        }
        if (!border) CHECK_EQ(sampler.id(static_cast<int64_t>(r)), want);
      }
    }
  }
}

TEST_CASE("frequencies of draws pass a chi-squared test against the exact distribution of every filter") {
  constexpr int64_t kVocab = 50;
  const Params all[] = {{.temperature = 1},
                        {.temperature = 0.5f},
                        {.temperature = 1, .top_p = 0.7f},
                        {.temperature = 1.3f, .min_p = 0.1f},
                        {.temperature = 1, .top_k = 7},
                        {.temperature = 1.2f, .top_p = 0.8f, .min_p = 0.02f, .top_k = 20}};
  Ops& ops = *test::backends().back();
  const int num_draws = test::is_slow(ops) ? 2000 : 20000;
  auto logits = random_logits(kVocab, 67, 2);
  logits[3] = logits[30];  // a tie, for the borders
  for (const Params& params : all) {
    CAPTURE(params.temperature);
    CAPTURE(params.top_p);
    CAPTURE(params.min_p);
    CAPTURE(params.top_k);
    const auto p = reference::filtered_softmax(logits, params.temperature, {params.min_p, params.top_k, params.top_p});
    constexpr int64_t kRows = 100;
    Sampler sampler(ops, kRows, kVocab, kVocab);
    std::vector<int64_t> counts(kVocab, 0);
    for (int64_t r = 0; r < kRows; ++r) {
      sampler.set_logits(r, logits);
      sampler.set(r, params);
    }
    sampler.head();
    for (int draw = 0; draw < num_draws; draw += kRows) {
      for (int64_t r = 0; r < kRows; ++r) sampler.set_random(r, static_cast<uint64_t>(draw + r) * 7919, draw % 977);
      sampler.pick();
      for (int64_t r = 0; r < kRows; ++r) ++counts[static_cast<size_t>(sampler.id(r))];
    }
    double chi2 = 0, degrees = -1;
    for (size_t i = 0; i < p.size(); ++i) {
      if (p[i] == 0) {
        CHECK_EQ(counts[i], 0);
        continue;
      }
      const double expected = p[i] * num_draws;
      chi2 += (static_cast<double>(counts[i]) - expected) * (static_cast<double>(counts[i]) - expected) / expected;
      degrees += 1;
    }
    // Mean `degrees`, variance 2 `degrees`: five standard deviations.
    CHECK(chi2 < degrees + 5 * std::sqrt(2 * degrees + 1));
  }
}

TEST_CASE("pick and lm_head_tiles say what does not fit") {
  Ops& ops = *test::backends().front();
  Sampler sampler(ops, 1, 3, 3);
  HostTensor hidden(DType::kF32, {1, 3}), w(DType::kF32, {3, 3}), two(DType::kF32, {2, 1});
  w.fill(0);
  const test::TestLinear head(ops, w);
  CHECK_THROWS_WITH_AS(ops.lm_head_tiles(sampler.tiles(), hidden, head.get(), 100, 3, sampler.rows(), sampler.tables()),
                       "lm_head_tiles: first_id 100 is not a multiple of 1024", Error);
  HeadTiles tiles = sampler.tiles();
  tiles.max = two;
  CHECK_THROWS_WITH_AS(ops.lm_head_tiles(tiles, hidden, head.get(), 0, 3, sampler.rows(), sampler.tables()),
                       doctest::Contains("max float32 [2, 1] does not match the tiles of logits float32 [1, 3]"),
                       Error);
  CHECK_THROWS_WITH_AS(ops.pick({}, sampler.tiles(), 4, {}, sampler.tables()),
                       "pick: vocab_size 4 does not fit logits float32 [1, 3]", Error);
}
