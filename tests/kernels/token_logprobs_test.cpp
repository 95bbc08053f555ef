#include <doctest/doctest.h>

#include <cmath>

#include "tests/support/sampler.h"

using namespace tokenmill;
using test::random_logits;
using test::Sampler;

namespace {

void check_row(const Sampler& sampler, int64_t row, const std::vector<double>& logits,
               const std::vector<int64_t>& top) {
  const LogprobResult& got = sampler.reported();
  const auto get = [](const TensorView& view, int64_t r, int64_t c) { return test::HostTensor::get_at(view, r, c); };
  const int64_t id = sampler.id(row);
  CHECK_EQ(get(got.logprobs, 0, row), sampler.logprob(row));  // to the bit what pick() gives
  CHECK(get(got.logprobs, 0, row) == doctest::Approx(reference::logprob(logits, id)).epsilon(1e-5));
  CHECK_EQ(get(got.ranks, 0, row), reference::rank(logits, id));
  CHECK_EQ(get(got.status, 0, row), 0);
  for (size_t i = 0; i < top.size(); ++i) {
    const auto column = static_cast<int64_t>(i);
    REQUIRE_EQ(get(got.top_ids, row, column), top[i]);
    REQUIRE(get(got.top_logprobs, row, column) == doctest::Approx(reference::logprob(logits, top[i])).epsilon(1e-5));
    REQUIRE_EQ(get(got.top_ranks, row, column), reference::rank(logits, top[i]));
  }
  for (auto column = static_cast<int64_t>(top.size()); column < got.top_ids.cols(); ++column) {
    REQUIRE_EQ(get(got.top_ids, row, column), -3);  // left as it was
  }
}

}  // namespace

TEST_CASE("logprobs, ranks and the most likely tokens equal the f64 reference, ties by ascending id") {
  constexpr int64_t kVocab = 2100;
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    const std::vector<int64_t> widths = {0, 1, 5, 20, 1024, kVocab};
    const auto rows = static_cast<int64_t>(widths.size());
    Sampler sampler(*ops, rows, kVocab, kVocab + 10);
    std::vector<std::vector<double>> logits;
    for (int64_t r = 0; r < rows; ++r) {
      auto row = random_logits(kVocab + 10, static_cast<uint64_t>(30 + r), 5);
      for (size_t i = kVocab; i < row.size(); ++i) row[i] = 90;  // padding looks best
      for (const size_t i : {2000, 3, 1500, 700}) row[i] = 4.5;
      if (r >= 3) {
        for (double& l : row) l = std::round(l * 4) / 4;  // many ties
      }
      sampler.set_logits(r, row);
      sampler.set(r, {.temperature = 1.5});
      sampler.set_num_top(r, widths[static_cast<size_t>(r)]);
      row.resize(kVocab);
      logits.push_back(row);
    }
    for (uint64_t key = 0; key < 5; ++key) {
      for (int64_t r = 0; r < rows; ++r) sampler.set_random(r, key, r);
      sampler.run();
      sampler.report(kVocab);
      for (int64_t r = 0; r < rows; ++r) {
        const auto i = static_cast<size_t>(r);
        check_row(sampler, r, logits[i], reference::most_likely(logits[i], widths[i]));
      }
    }
  }
}

TEST_CASE("listed ids are reported in their order, of the raw logits whatever adjusts the row") {
  for (Ops* ops : test::backends()) {
    const auto logits = random_logits(1500, 40, 5);
    Sampler sampler(*ops, 2, 1500, 1500);
    for (int64_t r = 0; r < 2; ++r) sampler.set_logits(r, logits);
    reference::SamplerRow row{.presence_penalty = 2, .repetition_penalty = 1.5, .generated_ids = {1400, 7, 7}};
    row.bias.assign(1500, -INFINITY);
    row.bias[7] = row.bias[1400] = 0;
    sampler.set(0, row, {1400, 3, 7});
    sampler.set(1, row);
    sampler.set_num_top(0, 3);
    sampler.set_num_top(1, 2);
    sampler.run();
    sampler.report(3);
    check_row(sampler, 0, logits, {1400, 3, 7});
    check_row(sampler, 1, logits, reference::most_likely(logits, 2));
  }
}

TEST_CASE("rows that want nothing are left alone, and rows of NaN have a status only") {
  Ops& ops = *test::backends().back();
  Sampler sampler(ops, 3, 30, 30);
  const auto logits = random_logits(30, 41, 2);
  for (int64_t r = 0; r < 3; ++r) sampler.set_logits(r, logits);
  sampler.set_logits(1, std::vector<double>(30, NAN));
  sampler.set_num_top(1, 2);
  sampler.set_num_top(2, 2);
  sampler.run();
  sampler.report(2);
  const LogprobResult& got = sampler.reported();
  CHECK_EQ(test::HostTensor::get_at(got.ranks, 0, 0), -3);
  CHECK_EQ(test::HostTensor::get_at(got.top_ids, 0, 0), -3);
  CHECK_EQ(test::HostTensor::get_at(got.status, 0, 1), 1);
  CHECK_EQ(test::HostTensor::get_at(got.top_ids, 1, 1), -3);
  check_row(sampler, 2, logits, reference::most_likely(logits, 2));
}

TEST_CASE("token_logprobs says what does not fit") {
  Ops& ops = *test::backends().front();
  Sampler sampler(ops, 2, 10, 10);
  sampler.run();
  sampler.report(3);
  LogprobResult narrow = sampler.reported();
  narrow.top_ranks = narrow.top_ranks.slice_cols(0, 2);
  const LogprobRows rows{sampler.picked().token_ids, sampler.picked().status, sampler.picked().status};
  CHECK_THROWS_WITH_AS(ops.token_logprobs(narrow, sampler.tiles(), 10, rows, sampler.tables()),
                       doctest::Contains("top_ranks int32 [2, 2] does not match top_ids int32 [2, 3]"), Error);
  CHECK_THROWS_WITH_AS(ops.token_logprobs(sampler.reported(), sampler.tiles(), 11, rows, sampler.tables()),
                       "token_logprobs: vocab_size 11 does not fit logits float32 [2, 10]", Error);
}
