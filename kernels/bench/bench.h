#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops.h"

/// Timers of the operations that decide a run's speed. Each checks its result in f64 before it is timed, and is
/// reported beside limits measured on the same machine, with the same threads, in the same process.
namespace tokenmill::bench {

/// What this machine, or one GPU of it, can do. Measured, not looked up.
struct Limits {
  int num_threads = 1;
  double f32_gflops_core = 0;  ///< FMA chains in registers, one thread; 0 of a GPU
  double f32_gflops_team = 0;  ///< the same on all threads at once
  double bf16_gflops_team =
      0;                 ///< what bf16 products can reach: the bf16 dot instruction where the path uses it, else FMA
  double read_gbps = 0;  ///< all threads reading memory far larger than the caches; GB = 1e9 bytes
  double copy_gbps = 0;  ///< bytes read + bytes written per second of a large copy
};

/// Of the device of ops, which options made. seconds: time spent per figure. On a GPU products of cuBLAS and copies of its
/// memory are the limits (kernels/cuda/device_speeds.h), and reading counts as copying.
Limits measure_limits(const Ops& ops, const OpsOptions& options, double seconds = 0.3);

struct Result {
  std::string family;  ///< "linear", "attention_decode", "attention_prefill", "sampling", "parts_sum",
                       ///< "parts_norm"
  std::string shape;   ///< "M 32, N 3072, K 576"
  DType dtype = DType::kF32;
  int64_t repeats = 0;
  double ms = 0;  ///< best of the repeats
  double median_ms = 0;
  double gflops = 0;         ///< floating-point operations / best time
  double gbps = 0;           ///< bytes that must move once (weights, or keys and values) / best time
  double compute_share = 0;  ///< gflops / the limit of the dtype
  double memory_share = 0;   ///< gbps / read_gbps; above 1 when the data stays in a cache
  double max_error = 0;      ///< largest |result - f64| over the checked elements, relative to the largest value
};

struct LinearShape {
  int64_t rows, out_features, in_features;
  DType dtype;
};
/// Throws Error(kInternal) when the result is wrong.
Result bench_linear(Ops& ops, const Limits& limits, const LinearShape& shape, double seconds = 0.3);

struct AttentionShape {
  int64_t sequences;   ///< of equal context
  int64_t new_tokens;  ///< per sequence in this step: 1 is decode
  int64_t context;     ///< tokens per sequence, the new ones included
  int64_t num_heads, num_kv_heads, head_dim;
  DType dtype;
  int64_t common = 0;  ///< so many of its first tokens every sequence has in common with the others, in the same blocks
};
/// One layer. Throws Error(kInternal) when the result is wrong.
Result bench_attention(Ops& ops, const Limits& limits, const AttentionShape& shape, double seconds = 0.3);

/// What a token is chosen by: kLogprobs is kTemperature with 20 logprobs reported besides.
enum class SamplingKind : uint8_t { kGreedy, kTemperature, kTopP, kPenalties, kLogprobs };
struct SamplingShape {
  int64_t rows, vocab_size;
  SamplingKind kind;
};
/// pick() (and token_logprobs()) over logits that lie in tiles already. Throws Error(kInternal) when a logprob is
/// wrong.
Result bench_sampling(Ops& ops, const Limits& limits, const SamplingShape& shape, double seconds = 0.3);

/// Partial sums of several ranks, f32, as they stand when they have been exchanged.
struct PartsShape {
  int64_t num_parts, rows, hidden_size;
  DType dtype;     ///< of the sums, of the residual stream and of its norm
  bool with_norm;  ///< add_parts_rms_norm; else sum_parts
};
/// Throws Error(kInternal) when the result is wrong.
Result bench_parts(Ops& ops, const Limits& limits, const PartsShape& shape, double seconds = 0.3);

/// CPU: the shapes of SmolLM2-135M's layers, linear at 1 to 512 rows, decode and prefill attention, f32 and bf16. GPU:
/// those of Llama-3.1-8B's, bf16.
std::vector<LinearShape> default_linear_shapes(DeviceKind kind);
std::vector<AttentionShape> default_attention_shapes(DeviceKind kind);
/// 1 and 32 rows of SmolLM2's and of Qwen's vocabulary, every kind.
std::vector<SamplingShape> default_sampling_shapes();
/// 2 and 4 parts of 1, 32 and 512 rows of 4,096 features, summed alone and with residual and norm.
std::vector<PartsShape> default_parts_shapes();

}  // namespace tokenmill::bench
