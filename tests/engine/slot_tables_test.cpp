#include "engine/slot_tables.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/core/error.h"
#include "tests/engine/staging.h"
#include "tests/support/backends.h"

namespace tokenmill {
namespace {

using test::read;
using Floats = std::vector<float>;
using Ids = std::vector<int32_t>;

/// What a table has for the slots, without the one behind them that is for padding.
template <typename T>
std::vector<T> read_slots(Ops& ops, const TensorView& table) {
  std::vector<T> values = read<T>(ops, table);
  values.pop_back();
  return values;
}

TensorView row_of(const TensorView& table, int64_t row) { return table.slice_rows(row, 1); }

TEST_CASE("a slot's parameters stand in its own place of every table, and the others' stay") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    SlotTables tables(*ops, 3, 3, 5);
    for (const int32_t slot : {0, 1, 2}) tables.set(slot, SlotSampling{});
    tables.send();
    SlotSampling sampling{.temperature = 0.5f,
                          .top_p = 0.25f,
                          .min_p = 0.125f,
                          .top_k = 7,
                          .key = 0x8000000000000001u,
                          .presence_penalty = 1.5f,
                          .frequency_penalty = -0.5f,
                          .repetition_penalty = 1.25f};
    sampling.num_logprobs = 2;
    sampling.logprob_token_ids = {4, 1};
    tables.set(1, sampling);
    tables.send();
    const SamplingTables& t = tables.tables();
    CHECK(read_slots<float>(*ops, t.temperature) == Floats{0, 0.5f, 0});
    CHECK(read_slots<float>(*ops, t.top_p) == Floats{1, 0.25f, 1});
    CHECK(read_slots<float>(*ops, t.min_p) == Floats{0, 0.125f, 0});
    CHECK(read_slots<int32_t>(*ops, t.top_k) == Ids{0, 7, 0});
    CHECK(static_cast<uint64_t>(read<int64_t>(*ops, t.key)[1]) == 0x8000000000000001u);
    CHECK(read_slots<float>(*ops, t.presence_penalty) == Floats{0, 1.5f, 0});
    CHECK(read_slots<float>(*ops, t.frequency_penalty) == Floats{0, -0.5f, 0});
    CHECK(read_slots<float>(*ops, t.repetition_penalty) == Floats{1, 1.25f, 1});
    CHECK(read_slots<int32_t>(*ops, t.adjust) == Ids{0, kAdjustCounts, 0});
    const Ids listed = read<int32_t>(*ops, row_of(t.listed_ids, 1));
    CHECK(Ids(listed.begin(), listed.begin() + 2) == Ids{4, 1});
    tables.set(1, SlotSampling{});  // the next sequence
    tables.send();
    CHECK(read_slots<int32_t>(*ops, t.adjust) == Ids{0, 0, 0});
    CHECK(read_slots<float>(*ops, t.temperature) == Floats{0, 0, 0});
  }
}

TEST_CASE("biases fill a row anew: listed ids over nothing, or over a mask of all others") {
  constexpr float kNever = -INFINITY;
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    SlotTables tables(*ops, 2, 2, 5);
    const SamplingTables& t = tables.tables();
    tables.set(0, {.bias = {{1, 2.0f}, {4, kNever}}});
    tables.set(1, {.only_biased = true, .bias = {{0, 0.0f}, {3, -1.0f}}});
    tables.send();
    CHECK(read<float>(*ops, row_of(t.bias, 0)) == Floats{0, 2, 0, 0, kNever});
    CHECK(read<float>(*ops, row_of(t.bias, 1)) == Floats{0, kNever, kNever, -1, kNever});
    CHECK(read_slots<int32_t>(*ops, t.adjust) == Ids{kAdjustBias, kAdjustBias});
    tables.set(1, {.bias = {{2, 1.0f}}});
    tables.send();
    CHECK(read<float>(*ops, row_of(t.bias, 1)) == Floats{0, 0, 1, 0, 0});
    CHECK(read<float>(*ops, row_of(t.bias, 0)) == Floats{0, 2, 0, 0, kNever});
  }
}

TEST_CASE("counts tell the prompt's ids from those generated") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    SlotTables tables(*ops, 2, 2, 5);
    tables.count(1, Ids{0, 3, 3, 4, 3, 4, 4}, 3);
    CHECK(read<int32_t>(*ops, row_of(tables.tables().counts, 1)) == Ids{kInPrompt, 0, 0, kInPrompt | 1, 3});
    tables.count(1, Ids{2}, 1);
    CHECK(read<int32_t>(*ops, row_of(tables.tables().counts, 1)) == Ids{0, 0, kInPrompt, 0, 0});
  }
}

TEST_CASE("only the first slots have rows per id, and they are most of what the tables take") {
  constexpr int64_t kVocab = 100000;
  const int64_t none = SlotTables::device_bytes(64, 0, kVocab);
  CHECK(SlotTables::device_bytes(64, 10, kVocab) - none == 10 * kVocab * 8);
  CHECK(none < 64 * 1024);
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    SlotTables tables(*ops, 4, 2, 5);
    CHECK(read<float>(*ops, tables.tables().temperature) == Floats(5, 0.0f));  // with a greedy one for padding
    CHECK(tables.tables().counts.rows() == 2);
    tables.set(3, SlotSampling{});
    CHECK_THROWS_AS(tables.set(3, {.bias = {{1, 2.0f}}}), Error);
    CHECK_THROWS_AS(tables.count(2, Ids{1}, 1), Error);
    SlotTables elsewhere(*ops, 4, 0, 5);  // of a rank that chooses no tokens
    elsewhere.set(3, {.bias = {{1, 2.0f}}});
  }
}

}  // namespace
}  // namespace tokenmill
