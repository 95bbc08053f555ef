#include "kernels/ops.h"

#include <fmt/format.h>

#include "kernels/core/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa.h"

// The checks of every public operation: each is made once here, whatever the backend.
namespace tokenmill {
namespace {

template <typename... Args>
[[noreturn]] void fail(const char* op, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kInternal, "{}: {}", op, fmt::format(format, std::forward<Args>(args)...));
}

/// `view` must be [rows, cols] of dtype; `because` says what it has to match.
struct Expect {
  const char* op;
  void matrix(const char* name, const TensorView& view, int64_t rows, int64_t cols, DType dtype, const char* because,
              const TensorView& other) const {
    if (view.rank() == 2 && view.size(0) == rows && view.cols() == cols && view.dtype() == dtype) return;
    fail(op, "{} {} does not match {} {}; expected {} [{}, {}]", name, view.describe(), because, other.describe(),
         to_string(dtype), rows, cols);
  }
  void vector(const char* name, const TensorView& view, int64_t size, DType dtype, const char* because,
              const TensorView& other) const {
    if (view.rank() == 1 && view.cols() == size && view.dtype() == dtype) return;
    fail(op, "{} {} does not match {} {}; expected {} [{}]", name, view.describe(), because, other.describe(),
         to_string(dtype), size);
  }
  /// [rows, cols] of the dtypes that activations have.
  void activations(const char* name, const TensorView& view) const {
    if (view.rank() == 2 &&
        (view.dtype() == DType::kF32 || view.dtype() == DType::kBF16 || view.dtype() == DType::kF16)) {
      return;
    }
    fail(op, "{} is {}; it must be a matrix of float32, bfloat16 or float16", name, view.describe());
  }
};

void check_pool(const char* op, const KvLayer& kv, const StepTensors& step, const TensorView& tokens) {
  if (kv.pool == nullptr) fail(op, "no KV pool");
  if (kv.layer < 0 || kv.layer >= kv.pool->spec().num_layers) {
    fail(op, "layer {} of a KV pool of {} layers", kv.layer, kv.pool->spec().num_layers);
  }
  if (kv.group < 0 || kv.group >= step.num_groups) fail(op, "KV group {} of {}", kv.group, step.num_groups);
  const auto& group = step.groups[static_cast<size_t>(kv.group)];
  const Expect expect{op};
  expect.vector("slot_mapping", group.slot_mapping, tokens.rows(), DType::kI64, "the tokens of", tokens);
  expect.vector("positions", step.positions, tokens.rows(), DType::kI64, "the tokens of", tokens);
  expect.vector("cu_seqlens", step.cu_seqlens, step.seq_lens.cols() + 1, DType::kI32, "seq_lens", step.seq_lens);
  if (group.block_table.rank() != 2 || group.block_table.size(0) != step.seq_lens.cols() ||
      group.block_table.dtype() != DType::kI32) {
    fail(op, "block_table {} does not match seq_lens {}", group.block_table.describe(), step.seq_lens.describe());
  }
  if (tokens.dtype() != kv.pool->spec().dtype) {
    fail(op, "{} against KV pages of {}", tokens.describe(), to_string(kv.pool->spec().dtype));
  }
}

void check_block_bytes(const char* op, const KvPool& pool, size_t num_blocks, size_t bytes) {
  const auto expected = static_cast<int64_t>(num_blocks) * canonical_block_bytes(pool.spec());
  if (static_cast<int64_t>(bytes) != expected) {
    fail(op, "{} blocks have {} bytes in the canonical layout, the buffer {}", num_blocks, expected, bytes);
  }
}

}  // namespace

int64_t canonical_block_bytes(const KvSpec& spec) {
  return spec.num_layers * spec.block_size * spec.num_kv_heads * (spec.k_dim + spec.v_dim) * dtype_size(spec.dtype);
}

void Ops::copy_blocks(KvPool& pool, std::span<const BlockCopy> copies) {
  for (const BlockCopy& copy : copies) {
    if (copy.source < 0 || copy.source >= pool.num_blocks() || copy.destination < 0 ||
        copy.destination >= pool.num_blocks() || copy.source == copy.destination) {
      fail("copy_blocks", "block {} to block {} in a pool of {}", copy.source, copy.destination, pool.num_blocks());
    }
  }
  if (!copies.empty()) do_copy_blocks(pool, copies);
}

namespace {
void check_ids(const char* op, const KvPool& pool, std::span<const int32_t> block_ids) {
  for (const int32_t id : block_ids) {
    if (id < 0 || id >= pool.num_blocks()) fail(op, "block {} of a pool of {}", id, pool.num_blocks());
  }
}
}  // namespace

void Ops::zero_blocks(KvPool& pool, std::span<const int32_t> block_ids) {
  check_ids("zero_blocks", pool, block_ids);
  if (!block_ids.empty()) do_zero_blocks(pool, block_ids);
}

void Ops::export_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<std::byte> out) {
  check_ids("export_blocks", pool, block_ids);
  check_block_bytes("export_blocks", pool, block_ids.size(), out.size());
  if (!block_ids.empty()) do_export_blocks(pool, block_ids, out);
}

void Ops::import_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<const std::byte> in) {
  check_ids("import_blocks", pool, block_ids);
  check_block_bytes("import_blocks", pool, block_ids.size(), in.size());
  if (!block_ids.empty()) do_import_blocks(pool, block_ids, in);
}

void Ops::embed(TensorView out, const Embedding& table, TensorView token_ids, TensorView last_token, int64_t first_id) {
  const Expect expect{"embed"};
  const LinearSpec& spec = table.spec();
  expect.activations("out", out);
  if (out.cols() != spec.in_features || out.dtype() != spec.compute_dtype) {
    fail("embed", "out {} does not match the table {} [{}, {}]", out.describe(), to_string(spec.compute_dtype),
         spec.out_features, spec.in_features);
  }
  expect.vector("token_ids", token_ids, out.rows(), DType::kI32, "out", out);
  if (last_token.rank() != 1 || last_token.dtype() != DType::kI32) {
    fail("embed", "last_token is {}; it must be a vector of int32", last_token.describe());
  }
  if (first_id < 0) fail("embed", "first_id {} is negative", first_id);
  if (out.rows() > 0) do_embed(out, table, token_ids, last_token, first_id);
}

void Ops::rms_norm(TensorView out, TensorView x, TensorView weight, float eps) {
  const Expect expect{"rms_norm"};
  expect.activations("x", x);
  expect.matrix("out", out, x.rows(), x.cols(), x.dtype(), "x", x);
  expect.vector("weight", weight, x.cols(), x.dtype(), "x", x);
  if (x.rows() > 0) do_rms_norm(out, x, weight, eps);
}

void Ops::add_rms_norm(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight, float eps) {
  const Expect expect{"add_rms_norm"};
  expect.activations("hidden", hidden);
  expect.matrix("block_out", block_out, hidden.rows(), hidden.cols(), hidden.dtype(), "hidden", hidden);
  expect.matrix("normed", normed, hidden.rows(), hidden.cols(), hidden.dtype(), "hidden", hidden);
  expect.vector("weight", weight, hidden.cols(), hidden.dtype(), "hidden", hidden);
  if (hidden.rows() > 0) do_add_rms_norm(normed, hidden, block_out, weight, eps);
}

void Ops::add(TensorView hidden, TensorView block_out) {
  const Expect expect{"add"};
  expect.activations("hidden", hidden);
  expect.matrix("block_out", block_out, hidden.rows(), hidden.cols(), hidden.dtype(), "hidden", hidden);
  if (hidden.rows() > 0) do_add(hidden, block_out);
}

void Ops::linear(TensorView out, TensorView x, const Linear& weights, const LinearCall& call) {
  const Expect expect{"linear"};
  const LinearSpec& spec = weights.spec();
  expect.activations("x", x);
  if (x.cols() != spec.in_features || x.dtype() != spec.compute_dtype) {
    fail("linear", "x {} does not match weights {} [{}, {}]", x.describe(), to_string(spec.compute_dtype),
         spec.out_features, spec.in_features);
  }
  if (out.rank() != 2 || out.size(0) != x.rows() || out.cols() != spec.out_features ||
      (out.dtype() != spec.compute_dtype && out.dtype() != DType::kF32)) {
    fail("linear", "out {} does not match x {} and weights [{}, {}]; it must be {} or float32", out.describe(),
         x.describe(), spec.out_features, spec.in_features, to_string(spec.compute_dtype));
  }
  if (call.bias.defined()) expect.vector("bias", call.bias, out.cols(), spec.compute_dtype, "out", out);
  if (call.residual.defined()) {
    expect.matrix("residual", call.residual, out.rows(), out.cols(), out.dtype(), "out", out);
  }
  if (x.rows() > 0) do_linear(out, x, weights, call);
}

void Ops::rope_angles(TensorView cos_sin, TensorView positions, TensorView inv_freq, float multiplier) {
  const Expect expect{"rope_angles"};
  if (cos_sin.rank() != 2 || cos_sin.dtype() != DType::kF32 || cos_sin.cols() % 2 != 0) {
    fail("rope_angles", "cos_sin is {}; it must be a float32 matrix of an even width", cos_sin.describe());
  }
  expect.vector("positions", positions, cos_sin.rows(), DType::kI64, "cos_sin", cos_sin);
  expect.vector("inv_freq", inv_freq, cos_sin.cols() / 2, DType::kF32, "cos_sin", cos_sin);
  if (cos_sin.rows() > 0) do_rope_angles(cos_sin, positions, inv_freq, multiplier);
}

void Ops::rope_and_store_kv(const RopeStoreArgs& args, const StepTensors& step, KvLayer kv) {
  const char* op = "rope_and_store_kv";
  const Expect expect{op};
  expect.activations("q", args.q);
  check_pool(op, kv, step, args.q);
  const KvSpec& spec = kv.pool->spec();
  if (args.q.cols() % (spec.k_dim * spec.num_kv_heads) != 0) {
    fail(op, "q {} does not hold a multiple of {} kv heads of {}", args.q.describe(), spec.num_kv_heads, spec.k_dim);
  }
  expect.matrix("k", args.k, args.q.rows(), spec.num_kv_heads * spec.k_dim, args.q.dtype(), "q", args.q);
  expect.matrix("v", args.v, args.q.rows(), spec.num_kv_heads * spec.v_dim, args.q.dtype(), "q", args.q);
  if (args.cos_sin.rank() != 2 || args.cos_sin.rows() != args.q.rows() || args.cos_sin.dtype() != DType::kF32 ||
      args.cos_sin.cols() % 2 != 0 || args.cos_sin.cols() > spec.k_dim) {
    fail(op, "cos_sin {} does not match q {} with heads of {}", args.cos_sin.describe(), args.q.describe(), spec.k_dim);
  }
  if (args.q_norm.defined()) expect.vector("q_norm", args.q_norm, spec.k_dim, args.q.dtype(), "q", args.q);
  if (args.k_norm.defined()) expect.vector("k_norm", args.k_norm, spec.k_dim, args.q.dtype(), "k", args.k);
  if (args.q.rows() > 0) do_rope_and_store_kv(args, step, kv);
}

void Ops::attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv, const AttentionParams& params) {
  const char* op = "attention";
  const Expect expect{op};
  expect.activations("q", q);
  check_pool(op, kv, step, q);
  const KvSpec& spec = kv.pool->spec();
  if (q.cols() % (spec.k_dim * spec.num_kv_heads) != 0) {
    fail(op, "q {} does not hold a multiple of {} kv heads of {}", q.describe(), spec.num_kv_heads, spec.k_dim);
  }
  expect.matrix("out", out, q.rows(), q.cols() / spec.k_dim * spec.v_dim, q.dtype(), "q", q);
  if (params.window < 0 || params.softcap < 0) {
    fail(op, "window {} and softcap {} must not be negative", params.window, params.softcap);
  }
  if (q.rows() > 0) do_attention(out, q, step, kv, params);
}

void Ops::gated_activation(TensorView out, TensorView gate_up, Activation activation) {
  const Expect expect{"gated_activation"};
  expect.activations("out", out);
  expect.matrix("gate_up", gate_up, out.rows(), 2 * out.cols(), out.dtype(), "out", out);
  if (out.rows() > 0) do_gated_activation(out, gate_up, activation);
}

void Ops::gather_rows(TensorView out, TensorView x, TensorView rows) {
  const Expect expect{"gather_rows"};
  expect.activations("x", x);
  expect.matrix("out", out, rows.cols(), x.cols(), x.dtype(), "x", x);
  expect.vector("rows", rows, out.rows(), DType::kI32, "out", out);
  if (out.rows() > 0) do_gather_rows(out, x, rows);
}

namespace {

void check_parts(const char* op, const char* name, const TensorView& out, const TensorView& parts,
                 const TensorView& bias) {
  if (parts.rank() != 3 || (parts.dtype() != DType::kF32 && parts.dtype() != out.dtype()) || parts.size(0) < 1 ||
      parts.size(1) < out.rows() || parts.cols() != out.cols()) {
    fail(op, "parts {} does not match {} {}; expected float32 or {} [parts, at least {}, {}]", parts.describe(), name,
         out.describe(), to_string(out.dtype()), out.rows(), out.cols());
  }
  if (!bias.defined()) return;
  const DType dtype = bias.dtype() == DType::kBF16 ? DType::kBF16 : DType::kF32;
  Expect{op}.vector("bias", bias, out.cols(), dtype, name, out);
}

}  // namespace

void Ops::sum_parts(TensorView out, TensorView parts, TensorView bias) {
  Expect{"sum_parts"}.activations("out", out);
  check_parts("sum_parts", "out", out, parts, bias);
  if (out.rows() > 0) do_sum_parts(out, parts, bias);
}

void Ops::add_parts_rms_norm(TensorView normed, TensorView hidden, TensorView parts, TensorView bias, TensorView weight,
                             float eps) {
  const Expect expect{"add_parts_rms_norm"};
  expect.activations("hidden", hidden);
  check_parts("add_parts_rms_norm", "hidden", hidden, parts, bias);
  expect.matrix("normed", normed, hidden.rows(), hidden.cols(), hidden.dtype(), "hidden", hidden);
  expect.vector("weight", weight, hidden.cols(), hidden.dtype(), "hidden", hidden);
  if (hidden.rows() > 0) do_add_parts_rms_norm(normed, hidden, parts, bias, weight, eps);
}

void Ops::do_add_parts_rms_norm(TensorView normed, TensorView hidden, TensorView parts, TensorView bias,
                                TensorView weight, float eps) {
  do_sum_parts(normed, parts, bias);
  do_add_rms_norm(normed, hidden, normed, weight, eps);
}

namespace {

void check_tiles(const char* op, const HeadTiles& tiles) {
  const Expect expect{op};
  const TensorView& logits = tiles.logits;
  if (logits.rank() != 2 || logits.dtype() != DType::kF32) {
    fail(op, "logits is {}; it must be a float32 matrix", logits.describe());
  }
  const int64_t rows = logits.rows(), count = (logits.cols() + kVocabTile - 1) / kVocabTile;
  expect.matrix("max", tiles.max, rows, count, DType::kF32, "the tiles of logits", logits);
  expect.matrix("sum_exp", tiles.sum_exp, rows, count, DType::kF32, "the tiles of logits", logits);
  expect.matrix("adjusted_max", tiles.adjusted_max, rows, count, DType::kF32, "the tiles of logits", logits);
  expect.matrix("argmax", tiles.argmax, rows, count, DType::kI32, "the tiles of logits", logits);
  expect.matrix("sum_exp_t", tiles.sum_exp_t, rows, count, DType::kF32, "the tiles of logits", logits);
  expect.matrix("non_finite", tiles.non_finite, rows, count, DType::kI32, "the tiles of logits", logits);
}

void check_rows(const char* op, const LogitsRows& rows, int64_t count, const TensorView& logits) {
  const Expect expect{op};
  expect.vector("rows.slots", rows.slots, count, DType::kI32, "logits", logits);
  expect.vector("rows.forced_ids", rows.forced_ids, count, DType::kI32, "logits", logits);
  expect.vector("rows.masked_offsets", rows.masked_offsets, count + 1, DType::kI32, "logits", logits);
  if (rows.masked_ids.rank() != 1 || rows.masked_ids.dtype() != DType::kI32) {
    fail(op, "rows.masked_ids is {}; it must be a vector of int32", rows.masked_ids.describe());
  }
}

void check_table(const char* op, const char* name, const TensorView& table, DType dtype, int32_t slot) {
  if (table.rank() != 2 || table.dtype() != dtype) {
    fail(op, "{} is {}; it must be a matrix of {}", name, table.describe(), to_string(dtype));
  }
  if (slot < 0 || slot >= table.rows()) fail(op, "slot {} of {} {}", slot, name, table.describe());
}

void check_vocab_ids(const char* op, std::span<const int32_t> ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size) fail(op, "token id {} of a vocabulary of {}", id, vocab_size);
  }
}

}  // namespace

void Ops::count_tokens(const SamplingTables& tables, int32_t slot, std::span<const int32_t> token_ids,
                       int64_t num_prompt_tokens) {
  const char* op = "count_tokens";
  check_table(op, "counts", tables.counts, DType::kI32, slot);
  check_vocab_ids(op, token_ids, tables.counts.cols());
  if (num_prompt_tokens < 0 || num_prompt_tokens > static_cast<int64_t>(token_ids.size())) {
    fail(op, "{} prompt tokens of {}", num_prompt_tokens, token_ids.size());
  }
  do_count_tokens(tables, slot, token_ids, num_prompt_tokens);
}

void Ops::set_bias(const SamplingTables& tables, int32_t slot, float fill, std::span<const int32_t> ids,
                   std::span<const float> values) {
  const char* op = "set_bias";
  check_table(op, "bias", tables.bias, DType::kF32, slot);
  check_vocab_ids(op, ids, tables.bias.cols());
  if (ids.size() != values.size()) fail(op, "{} ids and {} values", ids.size(), values.size());
  do_set_bias(tables, slot, fill, ids, values);
}

void Ops::lm_head_tiles(const HeadTiles& out, TensorView hidden, const Linear& head, int64_t first_id,
                        int64_t vocab_size, const LogitsRows& rows, const SamplingTables& tables) {
  const char* op = "lm_head_tiles";
  const LinearSpec& spec = head.spec();
  check_tiles(op, out);
  if (hidden.rank() != 2 || hidden.rows() != out.logits.rows() || hidden.cols() != spec.in_features ||
      hidden.dtype() != spec.compute_dtype || out.logits.cols() != spec.out_features) {
    fail(op, "hidden {} and logits {} do not match the head {} [{}, {}]", hidden.describe(), out.logits.describe(),
         to_string(spec.compute_dtype), spec.out_features, spec.in_features);
  }
  if (first_id < 0 || first_id % kVocabTile != 0) fail(op, "first_id {} is not a multiple of {}", first_id, kVocabTile);
  if (rows.slots.defined()) check_rows(op, rows, hidden.rows(), out.logits);
  if (hidden.rows() > 0) do_lm_head_tiles(out, hidden, head, first_id, vocab_size, rows, tables);
}

void Ops::pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
               const SamplingTables& tables) {
  const char* op = "pick";
  check_tiles(op, tiles);
  const Expect expect{op};
  const TensorView& logits = tiles.logits;
  if (vocab_size < 1 || vocab_size > logits.cols()) {
    fail(op, "vocab_size {} does not fit logits {}", vocab_size, logits.describe());
  }
  expect.vector("token_ids", out.token_ids, logits.rows(), DType::kI32, "logits", logits);
  expect.vector("logprobs", out.logprobs, logits.rows(), DType::kF32, "logits", logits);
  expect.vector("status", out.status, logits.rows(), DType::kI32, "logits", logits);
  expect.vector("rows.tokens", step.rows.tokens, logits.rows(), DType::kI32, "logits", logits);
  check_rows(op, step.rows, logits.rows(), logits);
  if (logits.rows() > 0) do_pick(out, tiles, vocab_size, step, tables);
}

void Ops::token_logprobs(const LogprobResult& out, const HeadTiles& tiles, int64_t vocab_size, const LogprobRows& rows,
                         const SamplingTables& tables) {
  const char* op = "token_logprobs";
  check_tiles(op, tiles);
  const Expect expect{op};
  const TensorView& logits = tiles.logits;
  const int64_t count = logits.rows();
  if (vocab_size < 1 || vocab_size > logits.cols()) {
    fail(op, "vocab_size {} does not fit logits {}", vocab_size, logits.describe());
  }
  expect.vector("rows.token_ids", rows.token_ids, count, DType::kI32, "logits", logits);
  expect.vector("rows.num_top", rows.num_top, count, DType::kI32, "logits", logits);
  expect.vector("rows.listed_slots", rows.listed_slots, count, DType::kI32, "logits", logits);
  expect.vector("logprobs", out.logprobs, count, DType::kF32, "logits", logits);
  expect.vector("ranks", out.ranks, count, DType::kI32, "logits", logits);
  expect.vector("status", out.status, count, DType::kI32, "logits", logits);
  const int64_t width = out.top_ids.rank() == 2 ? out.top_ids.cols() : 0;
  expect.matrix("top_ids", out.top_ids, count, width, DType::kI32, "logits", logits);
  expect.matrix("top_logprobs", out.top_logprobs, count, width, DType::kF32, "top_ids", out.top_ids);
  expect.matrix("top_ranks", out.top_ranks, count, width, DType::kI32, "top_ids", out.top_ids);
  if (count > 0) do_token_logprobs(out, tiles, vocab_size, rows, tables);
}

std::unique_ptr<Ops> make_ops(Device device, const OpsOptions& options) {
  if (device.kind != DeviceKind::kCpu) {
    throw Error(ErrorKind::kDevice, "device {}: this build of tokenmill has no CUDA; choose --device cpu",
                to_string(device));
  }
  if (options.num_threads < 1) {
    throw Error(ErrorKind::kConfig, "--threads {}: at least 1 thread is needed", options.num_threads);
  }
  return std::make_unique<cpu::CpuOps>(cpu::choose_isa(options.cpu_isa, cpu::available_isas()), options.num_threads);
}

}  // namespace tokenmill
