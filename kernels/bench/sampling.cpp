#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/bench/measure.h"

namespace tokenmill::bench {
namespace {

constexpr int64_t kHidden = 64;
constexpr int64_t kTop = 20;

const char* name_of(SamplingKind kind) {
  switch (kind) {
    case SamplingKind::kGreedy:
      return "greedy";
    case SamplingKind::kTemperature:
      return "temperature";
    case SamplingKind::kTopP:
      return "top-p 0.9";
    case SamplingKind::kPenalties:
      return "penalties";
    case SamplingKind::kLogprobs:
      return "20 logprobs";
  }
  return "";
}

/// The tables of as many slots as rows, the tiles, and what comes out.
struct SamplingBuffers {
  SamplingBuffers(Ops& ops, const SamplingShape& s)
      : f32(ops, DType::kF32, {6, s.rows}),
        i32(ops, DType::kI32, {8, s.rows}),
        keys(ops, DType::kI64, {s.rows}),
        positions(ops, DType::kI64, {s.rows}),
        offsets(ops, DType::kI32, {s.rows + 1}),
        counts(ops, DType::kI32, {s.rows, s.vocab_size}),
        logits(ops, DType::kF32, {s.rows, s.vocab_size}),
        tile_f32(ops, DType::kF32, {4 * s.rows, num_tiles(s)}),
        tile_i32(ops, DType::kI32, {2 * s.rows, num_tiles(s)}),
        out_f32(ops, DType::kF32, {2, s.rows}),
        out_i32(ops, DType::kI32, {4, s.rows}),
        top_i32(ops, DType::kI32, {2 * s.rows, kTop}),
        top_f32(ops, DType::kF32, {s.rows, kTop}) {
    const auto part = [&](const Tensor& t, int64_t i) { return t.view.slice_rows(i * s.rows, s.rows); };
    tiles = {logits.view,       part(tile_f32, 0), part(tile_f32, 1), part(tile_f32, 2),
             part(tile_i32, 0), part(tile_f32, 3), part(tile_i32, 1)};
    const auto row = [&](const Tensor& t, int64_t i) {
      return TensorView(t.view.slice_rows(i, 1).data(), t.view.dtype(), {s.rows});
    };
    tables.temperature = row(f32, 0);
    tables.top_p = row(f32, 1);
    tables.min_p = row(f32, 2);
    tables.presence_penalty = row(f32, 3);
    tables.frequency_penalty = row(f32, 4);
    tables.repetition_penalty = row(f32, 5);
    tables.top_k = row(i32, 0);
    tables.last_token = row(i32, 1);
    tables.adjust = row(i32, 2);
    tables.key = keys.view;
    tables.counts = counts.view;
    step.positions = positions.view;
    step.rows = {row(i32, 3), row(i32, 4), row(i32, 5), offsets.view, i32.view.slice_rows(0, 0)};
    step.rows.masked_ids = TensorView(i32.view.data(), DType::kI32, {0});
    picked = {row(out_i32, 0), row(out_f32, 0), row(out_i32, 1)};
    logprobs = {row(out_f32, 1), row(out_i32, 2), row(out_i32, 3), part(top_i32, 0), top_f32.view, part(top_i32, 1)};
    reported = {picked.token_ids, row(i32, 6), row(i32, 7)};
    for (int64_t r = 0; r < s.rows; ++r) set(r, s.kind);
    for (Tensor* changed : {&f32, &i32, &keys, &offsets, &counts}) changed->upload();
  }
  void set(int64_t r, SamplingKind kind) {
    const float floats[] = {kind == SamplingKind::kGreedy ? 0.0f : 0.8f,
                            kind == SamplingKind::kTopP ? 0.9f : 1.0f,
                            0.0f,
                            0.5f,
                            0.25f,
                            1.1f};  // in the order of the rows of f32
    for (int64_t i = 0; i < 6; ++i) f32.host().row<float>(i)[r] = floats[i];
    const auto row = static_cast<int32_t>(r);
    const int32_t integers[] = {
        0, 0, kind == SamplingKind::kPenalties ? kAdjustCounts : 0, row, row, -1, static_cast<int32_t>(kTop), -1};
    for (int64_t i = 0; i < 8; ++i) i32.host().row<int32_t>(i)[r] = integers[i];
    keys.host().as<int64_t>()[r] = r;
  }
  static int64_t num_tiles(const SamplingShape& s) { return (s.vocab_size + kVocabTile - 1) / kVocabTile; }

  Tensor f32, i32, keys, positions, offsets, counts, logits, tile_f32, tile_i32, out_f32, out_i32, top_i32, top_f32;
  HeadTiles tiles;
  SamplingTables tables;
  StepTensors step;
  PickResult picked;
  LogprobResult logprobs;
  LogprobRows reported;
};

/// Logits of a spread like a model's, through a small head.
void fill_tiles(Ops& ops, const SamplingShape& s, SamplingBuffers& b) {
  Tensor hidden(ops, DType::kF32, {s.rows, kHidden}), w(ops, DType::kF32, {s.vocab_size, kHidden});
  hidden.fill_random(11);
  w.fill_random(12);
  for (int64_t i = 0; i < s.rows * kHidden; ++i) hidden.host().as<float>()[i] *= 4;
  hidden.upload();
  LinearSpec spec{.in_features = kHidden, .out_features = s.vocab_size, .compute_dtype = DType::kF32, .parts = {}};
  spec.parts.push_back({.format = WeightFormat::kF32,
                        .source_rows = s.vocab_size,
                        .source_cols = kHidden,
                        .row_begin = 0,
                        .row_end = s.vocab_size,
                        .col_begin = 0,
                        .col_end = kHidden});
  Buffer storage = ops.memory().allocate(ops.linear_bytes(spec));
  const auto head = ops.make_linear(spec, storage.bytes());
  head->write(0, 0, w.host_bytes());
  head->finish();
  ops.lm_head_tiles(b.tiles, hidden.view, *head, 0, s.vocab_size, b.step.rows, b.tables);
  ops.stream().synchronize();
}

double reference_logprob(Tensor& logits, int64_t row, int64_t id) {
  double max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < logits.view.cols(); ++i) max = std::max(max, logits.get(row, i));
  for (int64_t i = 0; i < logits.view.cols(); ++i) sum += std::exp(logits.get(row, i) - max);
  return logits.get(row, id) - max - std::log(sum);
}

}  // namespace

Result bench_sampling(Ops& ops, const Limits& limits, const SamplingShape& s, double seconds) {
  Result result{.family = "sampling",
                .shape = fmt::format("rows {}, vocabulary {}, {}", s.rows, s.vocab_size, name_of(s.kind)),
                .dtype = DType::kF32};
  SamplingBuffers b(ops, s);
  fill_tiles(ops, s, b);
  const auto work = [&] {
    ops.pick(b.picked, b.tiles, s.vocab_size, b.step, b.tables);
    if (s.kind == SamplingKind::kLogprobs) {
      ops.token_logprobs(b.logprobs, b.tiles, s.vocab_size, b.reported, b.tables);
    }
  };
  work();
  for (Tensor* written : {&b.logits, &b.out_i32, &b.out_f32, &b.top_i32, &b.top_f32}) written->download();
  Checker checker(result);
  for (int64_t r = 0; r < s.rows; ++r) {
    const double want = reference_logprob(b.logits, r, b.out_i32.host().row<int32_t>(0)[r]);
    checker.check(b.out_f32.host().row<float>(0)[r], want, std::max(1.0, std::abs(want)));
    if (s.kind != SamplingKind::kLogprobs) continue;
    const double top = reference_logprob(b.logits, r, b.top_i32.host().row<int32_t>(r)[kTop - 1]);
    checker.check(b.top_f32.host().row<float>(r)[kTop - 1], top, std::max(1.0, std::abs(top)));
  }
  time(result, seconds, ops, work);
  rate(result, limits, 0, static_cast<double>(s.rows * s.vocab_size * 4));
  return result;
}

std::vector<SamplingShape> default_sampling_shapes() {
  std::vector<SamplingShape> shapes;
  for (const int64_t vocab_size : {49152, 151936}) {
    for (const int64_t rows : {1, 32}) {
      for (const SamplingKind kind : {SamplingKind::kGreedy, SamplingKind::kTemperature, SamplingKind::kTopP,
                                      SamplingKind::kPenalties, SamplingKind::kLogprobs}) {
        shapes.push_back({rows, vocab_size, kind});
      }
    }
  }
  return shapes;
}

}  // namespace tokenmill::bench
