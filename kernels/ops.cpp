#include "kernels/ops.h"

#include "kernels/core/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/isa.h"
#include "kernels/op_checks.h"
#ifdef TOKENMILL_CUDA
#include "kernels/cuda/cuda_ops.h"
#endif

// The checks of every public operation: each is made once here, whatever the backend. Those of the head and of
// sampling: ops_sampling.cpp.
namespace tokenmill {
namespace {

using checks::Expect;
using checks::fail;

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

void check_weights(const char* op, const LinearSpec& spec, bool dtype_is_supported, std::span<std::byte> storage,
                   int64_t bytes) {
  if (!dtype_is_supported || spec.in_features <= 0 || spec.out_features < 0)
    fail(op, "[{}, {}] in {}", spec.out_features, spec.in_features, to_string(spec.compute_dtype));
  if (static_cast<int64_t>(storage.size()) < bytes || reinterpret_cast<uintptr_t>(storage.data()) % 64 != 0)
    fail(op, "[{}, {}] needs {} bytes aligned to 64, got {} at {}", spec.out_features, spec.in_features, bytes,
         storage.size(), static_cast<const void*>(storage.data()));
}

}  // namespace

std::unique_ptr<Linear> Ops::make_linear(const LinearSpec& spec, std::span<std::byte> storage) {
  check_weights("make_linear", spec, supports(spec.compute_dtype), storage, linear_bytes(spec));
  return do_make_linear(spec, storage);
}

std::unique_ptr<Embedding> Ops::make_embedding(const LinearSpec& spec, std::span<std::byte> storage) {
  check_weights("make_embedding", spec, supports(spec.compute_dtype), storage, embedding_bytes(spec));
  return do_make_embedding(spec, storage);
}

std::unique_ptr<KvPool> Ops::make_kv_pool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage) {
  const int64_t block_bytes = kv_block_bytes(spec);
  if (num_blocks < 0 || static_cast<int64_t>(storage.size()) < num_blocks * block_bytes)
    fail("make_kv_pool", "{} blocks of {} bytes in {} bytes of storage", num_blocks, block_bytes, storage.size());
  return do_make_kv_pool(spec, num_blocks, storage);
}

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

void Ops::copy_pieces(std::span<const CopyPiece> pieces) {
  for (const CopyPiece& piece : pieces) {
    const auto to = reinterpret_cast<uintptr_t>(piece.destination), from = reinterpret_cast<uintptr_t>(piece.source);
    if (piece.num_bytes < 0 || piece.num_bytes % 4 != 0 || to % 4 != 0 || from % 4 != 0)
      fail("copy_pieces", "{} bytes from {} to {}; all must be multiples of 4", piece.num_bytes, piece.source,
           static_cast<const void*>(piece.destination));
  }
  if (!pieces.empty()) do_copy_pieces(pieces);
}

void Ops::do_copy_pieces(std::span<const CopyPiece> pieces) {
  for (const CopyPiece& piece : pieces) stream().copy(piece.destination, piece.source, piece.num_bytes);
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

std::unique_ptr<Ops> make_ops(Device device, const OpsOptions& options) {
#ifdef TOKENMILL_CUDA
  if (device.kind == DeviceKind::kCuda) {
    const int count = cuda::num_visible_devices();
    if (device.index >= count)
      throw Error(ErrorKind::kDevice, "device {}: {} CUDA devices are visible", to_string(device), count);
    return std::make_unique<cuda::CudaOps>(device, options);
  }
#endif
  if (device.kind != DeviceKind::kCpu) {
    throw Error(ErrorKind::kDevice, "device {}: this build of tokenmill has no CUDA; choose --device cpu",
                to_string(device));
  }
  if (options.attention_backend != "auto") {
    throw Error(ErrorKind::kConfig,
                "--attention-backend {} is for --device cuda; device {} has one attention, leave it at auto",
                options.attention_backend, to_string(device));
  }
  if (options.num_threads < 1) {
    throw Error(ErrorKind::kConfig, "--threads {}: at least 1 thread is needed", options.num_threads);
  }
  return std::make_unique<cpu::CpuOps>(cpu::choose_isa(options.cpu_isa, cpu::available_isas()), options.num_threads);
}

}  // namespace tokenmill
