// The whole sampler against its f64 reference: penalties, biases, masks, filters, forced tokens.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/sampler.h"

using namespace tokenmill;
using reference::SamplerRow;
using test::random_logits;
using test::Sampler;

namespace {

constexpr double kMasked = -INFINITY;

}  // namespace

TEST_CASE("penalties: repetition looks at prompt and generated ids, the other two at generated ids only") {
  const std::vector<double> scores = {2, -1, 0.5, 3, 0, 1}, want = {1, -2, 0.5, 0.5, 0, 1};
  SamplerRow row{.presence_penalty = 0.5, .frequency_penalty = 0.25, .repetition_penalty = 2};
  row.prompt_ids = {0, 1};
  row.generated_ids = {3, 3};
  CHECK(reference::adjusted(scores, row) == want);
  for (Ops* ops : test::backends()) {
    Sampler sampler(*ops, 6, 6, 6);  // row i masks all ids but i, so that its maximum is the adjusted score of i
    for (int32_t i = 0; i < 6; ++i) {
      row.masked_ids.clear();
      for (int32_t id = 0; id < 6; ++id) {
        if (id != i) row.masked_ids.push_back(id);
      }
      sampler.set_logits(i, scores);
      sampler.set(i, row);
    }
    sampler.run();
    for (int64_t i = 0; i < 6; ++i) {
      CHECK_EQ(test::HostTensor::get_at(sampler.tiles().adjusted_max, i, 0), want[static_cast<size_t>(i)]);
      CHECK_EQ(sampler.id(i), i);
      CHECK(sampler.logprob(i) == doctest::Approx(reference::logprob(scores, i)).epsilon(1e-6));  // of the raw scores
      CHECK_EQ(sampler.count(i, 3), i == 3 ? 3 : 2);
      CHECK_EQ(sampler.count(i, 0), kInPrompt + (i == 0 ? 1 : 0));
    }
  }
}

TEST_CASE("ids equal those of the f64 sampler for random sets of parameters") {
  constexpr int64_t kVocab = 1500, kRows = 50;
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    const int64_t num_sets = test::is_slow(*ops) ? 100 : 1000;
    test::Random random(81);
    int64_t num_close = 0, num_sampled = 0;
    for (int64_t set = 0; set < num_sets; set += kRows) {
      Sampler sampler(*ops, kRows, kVocab, kVocab);
      std::vector<std::vector<double>> logits;
      std::vector<SamplerRow> rows;
      for (int64_t r = 0; r < kRows; ++r) {
        logits.push_back(random_logits(kVocab, static_cast<uint64_t>(1000 + set + r), random.uniform(0.5, 12)));
        rows.push_back(test::random_sampler_row(random, kVocab));
        sampler.set_logits(r, logits.back());
        sampler.set(r, rows.back());
        sampler.set_random(r, static_cast<uint64_t>(set + r) * 0x9e3779b97f4a7c15u, 100 + r);
      }
      sampler.run();
      for (int64_t r = 0; r < kRows; ++r) {
        const auto i = static_cast<size_t>(r);
        const double u = uniform(static_cast<uint64_t>(set + r) * 0x9e3779b97f4a7c15u, 101 + r);
        const reference::Draw want = reference::draw(logits[i], rows[i], u);
        CAPTURE(set + r);
        CHECK_EQ(sampler.status(r), want.id < 0 ? 2 : 0);
        if (want.id < 0) continue;
        num_sampled += rows[i].temperature > 0 ? 1 : 0;
        if (want.margin < 2e-5) {  // f32 may decide the other way
          ++num_close;
          continue;
        }
        CHECK_EQ(sampler.id(r), want.id);
        CHECK(sampler.logprob(r) == doctest::Approx(reference::logprob(logits[i], want.id)).epsilon(1e-5));
      }
    }
    CHECK(num_close < num_sets / 10);
    CHECK(num_sampled > num_sets / 2);
  }
}

TEST_CASE("frequencies of draws pass a chi-squared test behind penalties, biases and masks") {
  constexpr int64_t kVocab = 50, kRows = 100;
  Ops& ops = *test::backends().back();
  const int num_draws = test::is_slow(ops) ? 2000 : 20000;
  const auto logits = random_logits(kVocab, 82, 2);
  std::vector<double> bias(kVocab, 0), allowed(kVocab, kMasked);
  bias[7] = 1.5;
  bias[9] = -3;
  bias[11] = kMasked;
  for (const size_t id : {4, 5, 6, 20, 21, 49}) allowed[id] = 0;
  const std::vector<int32_t> prompt = {1, 2, 3, 7}, generated = {2, 2, 8, 9};
  std::vector<SamplerRow> all = {
      {.temperature = 1, .repetition_penalty = 1.7, .prompt_ids = prompt, .generated_ids = generated},
      {.temperature = 0.7, .presence_penalty = 1, .frequency_penalty = -0.5, .generated_ids = generated},
      {.temperature = 1.3, .bias = bias, .masked_ids = {0, 49}},
      {.temperature = 1, .filter = {.top_p = 0.9}, .bias = allowed},
      {.temperature = 0.9,
       .filter = {.min_p = 0.05, .top_k = 20},
       .frequency_penalty = 0.8,
       .repetition_penalty = 1.1,
       .prompt_ids = prompt,
       .generated_ids = generated,
       .bias = bias}};
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    for (double* penalty : {&all[i].presence_penalty, &all[i].frequency_penalty, &all[i].repetition_penalty}) {
      *penalty = static_cast<float>(*penalty);
    }
    const auto p = reference::filtered_softmax(reference::adjusted(logits, all[i]), all[i].temperature, all[i].filter);
    Sampler sampler(ops, kRows, kVocab, kVocab);
    std::vector<int64_t> counts(kVocab, 0);
    for (int64_t r = 0; r < kRows; ++r) sampler.set_logits(r, logits);
    for (int draw = 0; draw < num_draws; draw += kRows) {
      for (int64_t r = 0; r < kRows; ++r) {
        sampler.set(r, all[i]);  // counted anew: each draw is the next token of the same sequence
        sampler.set_random(r, static_cast<uint64_t>(draw + r) * 7919, draw % 977);
      }
      sampler.run();
      for (int64_t r = 0; r < kRows; ++r) ++counts[static_cast<size_t>(sampler.id(r))];
    }
    double chi2 = 0, degrees = -1;
    for (size_t id = 0; id < p.size(); ++id) {
      if (p[id] == 0) {
        CHECK_EQ(counts[id], 0);
        continue;
      }
      const double expected = p[id] * num_draws;
      chi2 += std::pow(static_cast<double>(counts[id]) - expected, 2) / expected;
      degrees += 1;
    }
    // Mean `degrees`, variance 2 `degrees`: five standard deviations.
    CHECK(chi2 < degrees + 5 * std::sqrt(2 * degrees + 1));
  }
}

TEST_CASE("a forced id is taken, counted and reported; a row that masks everything fails alone") {
  for (Ops* ops : test::backends()) {
    const auto logits = random_logits(1100, 83, 3);
    Sampler sampler(*ops, 5, 1100, 1100);
    for (int64_t r = 0; r < 5; ++r) sampler.set_logits(r, logits);
    sampler.set(0, {.temperature = 1, .presence_penalty = 1});
    sampler.force(0, 1050);
    sampler.set(1, {.bias = std::vector<double>(1100, kMasked)});
    sampler.set(2, {.presence_penalty = 1, .bias = std::vector<double>(1100, kMasked), .masked_ids = {5}});
    sampler.force(2, 5);  // forced past its masks
    SamplerRow only{.temperature = 2, .bias = std::vector<double>(1100, kMasked)};
    only.bias[1099] = -100;
    sampler.set(3, only);
    only.presence_penalty = 1;
    only.masked_ids = {1099, 3};
    sampler.set(4, only);
    sampler.run();
    CHECK_EQ(sampler.id(0), 1050);
    CHECK_EQ(sampler.last(0), 1050);
    CHECK_EQ(sampler.count(0, 1050), 1);
    CHECK(sampler.logprob(0) == doctest::Approx(reference::logprob(logits, 1050)).epsilon(1e-6));
    CHECK_EQ(sampler.status(1), 2);
    CHECK_EQ(sampler.id(1), 0);
    CHECK_EQ(sampler.id(2), 5);
    CHECK_EQ(sampler.id(3), 1099);
    CHECK_EQ(sampler.status(3), 0);
    CHECK_EQ(sampler.status(4), 2);
    CHECK_EQ(sampler.count(4, 0), 0);  // nothing was chosen, nothing is counted
  }
}

TEST_CASE("penalties and biases past f32's range keep the order and give no NaN") {
  for (Ops* ops : test::backends()) {
    Sampler sampler(*ops, 2, 4, 4);
    for (int64_t r = 0; r < 2; ++r) sampler.set_logits(r, {3e38, 1, -3e38, 2});
    SamplerRow row{.repetition_penalty = 1e-30, .prompt_ids = {0, 1, 2, 3}};
    sampler.set(0, row);
    row.temperature = 0.01;
    row.repetition_penalty = 1e30;
    row.bias = {-3e38, 0, -3e38, 0};
    sampler.set(1, row);
    sampler.run();
    CHECK_EQ(sampler.id(0), 0);
    CHECK_EQ(sampler.status(0), 0);
    CHECK_EQ(sampler.status(1), 0);
    CHECK_NE(sampler.id(1), 2);  // the others are all but equal, drawn by the uniform
  }
}

TEST_CASE("what is chosen has the same bits on any number of threads, beside any rows") {
  constexpr int64_t kVocab = 1100, kRows = 12;
  for (const std::string& isa : test::cpu_isas()) {
    std::vector<std::byte> want;
    for (const int threads : {1, 2, 4}) {
      const auto ops = test::cpu_backend(isa, threads);
      test::Random random(84);
      Sampler together(*ops, kRows, kVocab, kVocab);
      Sampler alone(*ops, 1, kVocab, kVocab);
      std::vector<int64_t> alone_ids;
      std::vector<double> alone_logprobs;
      for (int64_t r = 0; r < kRows; ++r) {
        const auto logits = random_logits(kVocab, static_cast<uint64_t>(900 + r), 4);
        const SamplerRow row = test::random_sampler_row(random, kVocab);
        for (Sampler* s : {&together, &alone}) {
          const int64_t at = s == &alone ? 0 : r;
          s->set_logits(at, logits);
          s->set(at, row);
          s->set_random(at, static_cast<uint64_t>(r), 7);
          s->set_num_top(at, r);
        }
        alone.run();
        alone_ids.push_back(alone.id(0));
        alone_logprobs.push_back(alone.logprob(0));
      }
      together.run();
      together.report(kRows);
      for (int64_t r = 0; r < kRows; ++r) {
        CHECK_EQ(together.id(r), alone_ids[static_cast<size_t>(r)]);
        CHECK_EQ(together.logprob(r), alone_logprobs[static_cast<size_t>(r)]);
      }
      if (want.empty()) want = together.bytes();
      CHECK(together.bytes() == want);
    }
  }
}

TEST_CASE("count_tokens and set_bias say what does not fit") {
  Ops& ops = *test::backends().front();
  const Sampler sampler(ops, 2, 10, 10);
  const std::vector<int32_t> outside = {3, 10};
  const std::vector<float> one = {1};
  CHECK_THROWS_WITH_AS(ops.count_tokens(sampler.tables(), 0, outside, 1),
                       "count_tokens: token id 10 of a vocabulary of 10", Error);
  CHECK_THROWS_WITH_AS(ops.count_tokens(sampler.tables(), 2, {}, 0), "count_tokens: slot 2 of counts int32 [2, 10]",
                       Error);
  CHECK_THROWS_WITH_AS(ops.set_bias(sampler.tables(), 0, 0, std::vector<int32_t>{1, 2}, one),
                       "set_bias: 2 ids and 1 values", Error);
}
