#include "kernels/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/bench/measure.h"
#include "kernels/core/check.h"
#include "kernels/random.h"

namespace tokenmill::bench {
Result bench_linear(Ops& ops, const Limits& limits, const LinearShape& shape, double seconds) {
  const auto [rows, n, k, dtype] = shape;
  Result result{.family = "linear", .shape = fmt::format("M {}, N {}, K {}", rows, n, k), .dtype = dtype};
  Tensor x(ops, dtype, {rows, k}), w(ops, dtype, {n, k}), out(ops, dtype, {rows, n});
  x.fill_random(1);
  w.fill_random(2);
  LinearSpec spec{.in_features = k, .out_features = n, .compute_dtype = dtype, .parts = {}};
  spec.parts.push_back({.format = dtype == DType::kF32 ? WeightFormat::kF32 : WeightFormat::kBF16,
                        .source_rows = n,
                        .source_cols = k,
                        .row_begin = 0,
                        .row_end = n,
                        .col_begin = 0,
                        .col_end = k});
  Buffer storage = ops.memory().allocate(ops.linear_bytes(spec));
  const auto linear = ops.make_linear(spec, storage.bytes());
  linear->write(0, 0, w.host_bytes());
  linear->finish();
  const auto work = [&] { ops.linear(out.view, x.view, *linear); };
  work();
  out.download();
  Checker checker(result);
  for (int i = 0; i < kSamples; ++i) {
    const auto r = static_cast<int64_t>(uniform(3, i) * static_cast<double>(rows));
    const auto c = static_cast<int64_t>(uniform(4, i) * static_cast<double>(n));
    double want = 0, size = 0;
    for (int64_t j = 0; j < k; ++j) {
      want += x.get(r, j) * w.get(c, j);
      size += std::abs(x.get(r, j) * w.get(c, j));
    }
    checker.check(out.get(r, c), want, dtype == DType::kF32 ? size : std::max(std::abs(want), size / 16));
  }
  time(result, seconds, ops, work);
  rate(result, limits, 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k),
       static_cast<double>(n * k * dtype_size(dtype)));
  return result;
}

namespace {

/// Step tensors and pages of sequences of one length, blocks dealt out in turn; those of common tokens are the first
/// sequence's.
struct Pages {
  Pages(Ops& ops, const AttentionShape& s)
      : common(s.common),
        spec{.num_layers = 1,
             .num_kv_heads = s.num_kv_heads,
             .k_dim = s.head_dim,
             .v_dim = s.head_dim,
             .dtype = s.dtype},
        blocks_per_sequence((s.context + spec.block_size - 1) / spec.block_size),
        storage(ops.memory().allocate(s.sequences * blocks_per_sequence * ops.kv_block_bytes(spec))),
        pool(ops.make_kv_pool(spec, s.sequences * blocks_per_sequence, storage.bytes())),
        positions(ops, DType::kI64, {s.sequences * s.context}),
        cu_seqlens(ops, DType::kI32, {s.sequences + 1}),
        seq_lens(ops, DType::kI64, {s.sequences}),
        table(ops, DType::kI32, {s.sequences, blocks_per_sequence}),
        slots(ops, DType::kI64, {s.sequences * s.context}),
        ids(ops, DType::kI32, {s.sequences * s.context}) {
    for (int64_t i = 0; i < s.sequences; ++i) {
      for (int64_t b = 0; b < blocks_per_sequence; ++b) {
        const bool is_own = b >= common / spec.block_size;
        table.host().row<int32_t>(i)[b] = static_cast<int32_t>(b * s.sequences + (is_own ? i : 0));
      }
    }
    table.upload();
  }
  /// The last `tokens` of `context` tokens of every sequence.
  StepTensors step(int64_t sequences, int64_t tokens, int64_t context) {
    int64_t t = 0;
    for (int64_t s = 0; s < sequences; ++s) {
      for (int64_t p = context - tokens; p < context; ++p, ++t) {
        positions.host().as<int64_t>()[t] = p;
        const bool is_own = s == 0 || p >= common;
        slots.host().as<int64_t>()[t] =
            is_own ? table.host().row<int32_t>(s)[p / spec.block_size] * spec.block_size + p % spec.block_size : -1;
      }
      cu_seqlens.host().as<int32_t>()[s + 1] = static_cast<int32_t>(t);
      seq_lens.host().as<int64_t>()[s] = context;
    }
    for (Tensor* changed : {&positions, &slots, &cu_seqlens, &seq_lens}) changed->upload();
    StepTensors step;
    step.token_ids = ids.view.slice_rows(0, t);
    step.positions = positions.view.slice_rows(0, t);
    step.cu_seqlens = cu_seqlens.view;
    step.seq_lens = seq_lens.view;
    step.groups[0] = {.block_table = table.view, .slot_mapping = slots.view.slice_rows(0, t)};
    step.num_groups = 1;
    return step;
  }
  int64_t common;
  KvSpec spec;
  int64_t blocks_per_sequence;
  Buffer storage;
  std::unique_ptr<KvPool> pool;
  Tensor positions, cu_seqlens, seq_lens, table, slots, ids;
};

/// One element of the output of a token that sees `visible` positions of its sequence, whose tokens are rows of k and v
/// from kv_row on, the common ones rows from 0 on.
double reference_element(const AttentionShape& s, Tensor& q, int64_t q_row, Tensor& k, Tensor& v, int64_t kv_row,
                         int64_t visible, int64_t head, int64_t dim, float scale) {
  const int64_t kv_head = head / (s.num_heads / s.num_kv_heads);
  double sum = 0, out = 0;
  for (int64_t p = 0; p < visible; ++p) {
    const int64_t row = p < s.common ? p : kv_row + p;
    double score = 0;
    for (int64_t d = 0; d < s.head_dim; ++d) {
      score += q.get(q_row, head * s.head_dim + d) * k.get(row, kv_head * s.head_dim + d);
    }
    const double weight = std::exp(score * scale);
    sum += weight;
    out += weight * v.get(row, kv_head * s.head_dim + dim);
  }
  return out / sum;
}

}  // namespace

Result bench_attention(Ops& ops, const Limits& limits, const AttentionShape& s, double seconds) {
  Result result{.family = s.new_tokens == 1 ? "attention_decode" : "attention_prefill",
                .shape = fmt::format("{} x {} of {} tokens{}, heads {}/{}, dim {}", s.sequences, s.new_tokens,
                                     s.context, s.common > 0 ? fmt::format(" ({} common)", s.common) : "", s.num_heads,
                                     s.num_kv_heads, s.head_dim),
                .dtype = s.dtype};
  Pages pages(ops, s);
  const int64_t all = s.sequences * s.context, tokens = s.sequences * s.new_tokens;
  Tensor k(ops, s.dtype, {all, s.num_kv_heads * s.head_dim}), v(ops, s.dtype, {all, s.num_kv_heads * s.head_dim}),
      fill_q(ops, s.dtype, {all, s.num_heads * s.head_dim}), no_rotation(ops, DType::kF32, {all, 0}),
      q(ops, s.dtype, {tokens, s.num_heads * s.head_dim}), out(ops, s.dtype, {tokens, s.num_heads * s.head_dim});
  k.fill_random(5);
  v.fill_random(6);
  q.fill_random(7);
  const KvLayer layer{pages.pool.get(), 0, 0};
  ops.rope_and_store_kv({.q = fill_q.view, .k = k.view, .v = v.view, .cos_sin = no_rotation.view},
                        pages.step(s.sequences, s.context, s.context), layer);
  const StepTensors step = pages.step(s.sequences, s.new_tokens, s.context);
  const AttentionParams params{.scale = 0.25f};
  const auto work = [&] {
    ops.plan(step);
    ops.attention(out.view, q.view, step, layer, params);
  };
  work();
  out.download();
  Checker checker(result);
  for (int i = 0; i < kSamples; ++i) {
    const auto t = static_cast<int64_t>(uniform(8, i) * static_cast<double>(tokens));
    const auto column = static_cast<int64_t>(uniform(9, i) * static_cast<double>(out.view.cols()));
    const int64_t sequence = t / s.new_tokens, visible = s.context - s.new_tokens + t % s.new_tokens + 1;
    const double want = reference_element(s, q, t, k, v, sequence * s.context, visible, column / s.head_dim,
                                          column % s.head_dim, params.scale);
    checker.check(out.get(t, column), want, std::max(std::abs(want), 0.05));
  }
  time(result, seconds, ops, work);
  double visible = 0;  // query-key pairs of one head
  for (int64_t i = 0; i < s.new_tokens; ++i) visible += static_cast<double>(s.context - i);
  const double pairs = visible * static_cast<double>(s.sequences * s.num_heads);
  const int64_t stored = all - (s.sequences - 1) * s.common;
  rate(result, limits, 4.0 * pairs * static_cast<double>(s.head_dim),
       static_cast<double>(stored * s.num_kv_heads * s.head_dim * 2 * dtype_size(s.dtype)));
  return result;
}

std::vector<LinearShape> default_linear_shapes(DeviceKind kind) {
  std::vector<LinearShape> shapes;
  if (kind == DeviceKind::kCuda) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}) {
      for (const int64_t rows : {1, 16, 64, 256, 2048, 8192}) shapes.push_back({rows, n, k, DType::kBF16});
    }
    return shapes;
  }
  const std::pair<int64_t, int64_t> matrices[] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [n, k] : matrices) {
      for (const int64_t rows : {1, 8, 32, 64, 128, 512}) {
        if (n < 40000 || rows <= 128) shapes.push_back({rows, n, k, dtype});  // a head's rows: sequences, not tokens
      }
    }
  }
  return shapes;
}

std::vector<AttentionShape> default_attention_shapes(DeviceKind kind) {
  std::vector<AttentionShape> shapes;
  if (kind == DeviceKind::kCuda) {
    for (const auto& [sequences, tokens, context, common] :
         {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 1, 32768, 0},
          {16, 1, 4096, 0},
          {16, 1, 4096, 3072},
          {64, 1, 4096, 0},
          {64, 1, 4096, 3072},
          {256, 1, 1024, 0},
          {256, 1, 2048, 1024},
          {1, 2048, 2048, 0},
          {1, 8192, 8192, 0},
          {1, 2048, 16384, 0}}) {
      shapes.push_back({sequences, tokens, context, 32, 8, 128, DType::kBF16, common});
    }
    return shapes;
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [sequences, tokens, context] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1024},
                                                     {32, 1, 384},
                                                     {64, 1, 1024},
                                                     {1, 256, 256},
                                                     {1, 512, 2048}}) {
      shapes.push_back({sequences, tokens, context, 9, 3, 64, dtype});
    }
  }
  return shapes;
}

}  // namespace tokenmill::bench
