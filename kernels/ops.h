#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/core/tensor.h"
#include "kernels/device/memory.h"
#include "kernels/device/stream.h"
#include "kernels/kv_pool.h"
#include "kernels/linear.h"
#include "kernels/op_times.h"
#include "kernels/step_tensors.h"
#include "kernels/vocab_shards.h"

namespace tokenmill {

enum class Activation : uint8_t { kNone, kSilu };

/// Extras of one linear call. Views may be undefined (absent).
struct LinearCall {
  TensorView bias;      ///< [out_features], compute dtype
  TensorView residual;  ///< [T, out_features], dtype of out; added after the bias in f32; may alias out
};

/// Rotary embedding of q and k, optional per-head RMS norm before it, and the store of k and v into the paged cache.
/// q and k are rotated in place.
struct RopeStoreArgs {
  TensorView q;        ///< [T, num_heads * k_dim]
  TensorView k;        ///< [T, num_kv_heads * k_dim]
  TensorView v;        ///< [T, num_kv_heads * v_dim]
  TensorView cos_sin;  ///< [T, rotary_dim] f32 from rope_angles: rotary_dim/2 cosines, then as many sines
  TensorView q_norm;   ///< [k_dim] or undefined
  TensorView k_norm;   ///< [k_dim] or undefined
  float norm_eps = 0;
};

struct AttentionParams {
  float scale = 1;
  int64_t window = 0;  ///< 0: all earlier positions; else position p sees (p - window, p]
  float softcap = 0;   ///< 0: off; else softcap * tanh(score / softcap)
};

/// Logits of R rows and their per-tile partials; f32, tiles in ascending id order, over the ids below vocab_size. Raw
/// logits l are the model's; adjusted logits x are what a token is chosen from (Ops::pick), equal to l in most rows.
/// For row r with temperature t (1 when greedy), all per tile:
struct HeadTiles {
  /// f32: l, [R, ids of the shard], or [P, R, VocabShards::most_ids()] when those of P shards have been gathered
  TensorView logits;
  TensorView max;           ///< [R, tiles] f32: of l
  TensorView sum_exp;       ///< [R, tiles] f32: sum exp(l - max)
  TensorView adjusted_max;  ///< [R, tiles] f32: of x; minus infinity when every id of the tile is masked
  TensorView argmax;        ///< [R, tiles] i32: of x, absolute, the smallest id among equals
  TensorView sum_exp_t;     ///< [R, tiles] f32: sum exp((x - adjusted_max) / t)
  TensorView non_finite;    ///< [R, tiles] i32: not 0 when an l is NaN or infinite
};

/// Words of one row and tile in an exchange of partials: all but the logits, in the order of HeadTiles.
constexpr int64_t kTileWords = 6;
/// The partials among `tiles` as views of one rank's words [kTileWords, R, VocabShards::most_tiles()] i32, of which the
/// first num_tiles columns are used.
HeadTiles tiles_of_words(TensorView logits, TensorView words, int64_t num_tiles);

/// What is left of a shard's logits where the ranks of a group do not gather them: of each row the ids that pick() may
/// still choose. i32 words [R, shortlist_words(capacity)]: their number n, then capacity ids in ascending order, raw
/// logits and scaled adjusted ones (f32 bits), of which the first n mean something. n > capacity: they did not fit.
constexpr int64_t shortlist_words(int64_t capacity) { return 1 + 3 * capacity; }
/// Top-k rows list at most k ids of a shard and the ties of the last one: room for these is part of the capacity.
constexpr int64_t kShortlistTies = 8;
/// Rows with a larger k need whole logits.
constexpr int64_t kShortlistMaxTopK = 256;
/// Ids of a shard for which a row with such parameters needs room; more than 1: ties may take more than that. 0: it
/// needs whole logits. Forced rows need 1.
int64_t shortlist_capacity(float temperature, float min_p, int32_t top_k, float top_p);

/// What pick() chose. status 0: fine; 1: the row's logits hold NaN or infinity; 2: bias and masks leave no id (token_id
/// is 0 in both).
struct PickResult {
  TensorView token_ids;  ///< [R] i32
  TensorView logprobs;   ///< [R] f32: log softmax of the raw logits (before temperature and filters) at the chosen id
  TensorView status;     ///< [R] i32
};

/// Logprobs of raw logits. Ranks count from 1: one more than the ids with a larger logit. Row r fills num_top[r] of its
/// K columns and leaves the others; rows with num_top -1, or status 1, are left as they are but for their status.
struct LogprobResult {
  TensorView logprobs;      ///< [R] f32: of token_ids[r]
  TensorView ranks;         ///< [R] i32
  TensorView status;        ///< [R] i32: 1 when the row's logits hold NaN or infinity, else 0
  TensorView top_ids;       ///< [R, K] i32
  TensorView top_logprobs;  ///< [R, K] f32
  TensorView top_ranks;     ///< [R, K] i32
};

/// A stretch of bytes and where it goes.
struct CopyPiece {
  void* destination;
  const void* source;
  int64_t num_bytes;
};

/// The largest steps a backend will be asked for: what its own work space depends on.
struct WorkspaceRequest {
  int64_t max_num_tokens = 0, max_logits_rows = 0;
  int64_t widest_input = 0, widest_output = 0;  ///< features of the widest linear layers, the head left out
  int64_t hidden_size = 0, vocab_size = 0;
  int64_t num_heads = 0;  ///< query heads
  std::vector<KvSpec> kv_groups;
};

/// Operations of one decoder forward pass on one device. Each public call checks its arguments once (Error(kInternal)
/// naming both sides of a mismatch), enqueues on stream() and returns; results may be read after the stream's event.
/// Row-major, T tokens; T == 0 does nothing. out aliases an input only where stated. Sums are f32 in an order that does
/// not depend on T, the other rows, the thread count or the addresses: a row's bits are the same in any batch.
class Ops {
 public:
  virtual ~Ops() = default;

  virtual Device device() const = 0;
  /// One line for the banner: "cpu avx2, 2 threads".
  virtual std::string describe() const = 0;
  /// The name of the numerics path ("cpu-avx2", "cpu-avx512", "cpu-avx512_bf16"): part of a job's identity.
  virtual std::string numerics() const = 0;
  /// What the bytes of packed weights depend on besides their specs: backends with the same layout may share or keep them.
  virtual std::string weight_layout() const = 0;
  virtual bool supports(DType compute_dtype) const = 0;
  virtual Stream& stream() = 0;
  virtual Memory& memory() = 0;
  /// Of all work executed so far. All zero on a device that does not measure it.
  virtual OpTimes op_times() const { return {}; }
  /// Bytes that the backend takes at most for itself, beside what its callers give it, in steps of these sizes. Part of
  /// the memory plan.
  virtual int64_t workspace_bytes(const WorkspaceRequest& request) const = 0;
  /// Takes work space for steps of these sizes now, where a step must not: on a GPU. Others take it in their first
  /// steps.
  virtual void reserve(const WorkspaceRequest&) {}

  // ---- weights --------------------------------------------------------------------------------------------------
  /// Bytes of storage that make_linear / make_embedding need for spec.
  virtual int64_t linear_bytes(const LinearSpec& spec) = 0;
  virtual int64_t embedding_bytes(const LinearSpec& spec) = 0;
  /// storage: at least linear_bytes(spec) or embedding_bytes(spec), 64-byte aligned device memory that outlives the
  /// result. spec's dtype is one that the backend supports().
  std::unique_ptr<Linear> make_linear(const LinearSpec& spec, std::span<std::byte> storage);
  std::unique_ptr<Embedding> make_embedding(const LinearSpec& spec, std::span<std::byte> storage);
  /// A sink that fills a plain vector or matrix (norm weights, biases): converts the source format to out's dtype.
  /// parts as in LinearSpec, stacked over out's elements.
  virtual std::unique_ptr<WeightSink> make_vector_sink(TensorView out, const std::vector<LinearPart>& parts) = 0;

  // ---- KV pages -------------------------------------------------------------------------------------------------
  virtual int64_t kv_block_bytes(const KvSpec& spec) = 0;
  /// storage: at least num_blocks * kv_block_bytes(spec) of device memory that outlives the result.
  std::unique_ptr<KvPool> make_kv_pool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage);
  /// Copies whole blocks, all layers. Sources and destinations are disjoint.
  void copy_blocks(KvPool& pool, std::span<const BlockCopy> copies);
  /// Fills blocks with zeros: a recycled block must not leak NaN into a neighbour.
  void zero_blocks(KvPool& pool, std::span<const int32_t> block_ids);
  /// Canonical layout per block: [layer][k then v][token in block][kv head][dim], the pool's dtype. Host memory of
  /// canonical_block_bytes(spec) per block. Synchronous; for offload, transfer between ranks and tests.
  void export_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<std::byte> out);
  void import_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<const std::byte> in);

  // ---- one step -------------------------------------------------------------------------------------------------
  /// Once per step, before the first layer: reads the step's tensors and makes the work lists of attention. The views
  /// stay valid until the step's event.
  virtual void plan(const StepTensors& step) = 0;

  /// Copies between device memory and memory().allocate_host(), in either direction, as few pieces of device work as
  /// can be: what a step brings in or out. Sizes are multiples of 4 bytes, 0 too, and so are addresses; nothing
  /// overlaps. The pieces are read before it returns, what they name when the stream comes to it.
  void copy_pieces(std::span<const CopyPiece> pieces);

  /// out[t] = table[id(t) - first_id], id(t) = token_ids[t], or last_token[-1 - token_ids[t]] when negative.
  /// out [T, hidden_size] compute dtype. first_id: absolute id of the table's first row (a rank's share of the
  /// vocabulary). Ids outside the table give -0, which adds nothing: the sum of all shares has the table's bits.
  void embed(TensorView out, const Embedding& table, TensorView token_ids, TensorView last_token, int64_t first_id = 0);

  /// out[t,i] = x[t,i] / sqrt(mean_i(x[t,i]^2) + eps) * weight[i]. out may alias x. x, out [T, hidden_size],
  /// weight [hidden_size]; one dtype for all. Source: Zhang & Sennrich, arXiv:1910.07467. The normalized value is
  /// rounded to the dtype before the weight is applied, as the reference implementations do.
  void rms_norm(TensorView out, TensorView x, TensorView weight, float eps);
  /// hidden += block_out (rounded to the dtype); normed = rms_norm(hidden). normed may alias block_out.
  void add_rms_norm(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight, float eps);
  /// hidden += block_out (rounded to the dtype): add_rms_norm without the norm. Both [T, hidden_size] of one dtype.
  void add(TensorView hidden, TensorView block_out);

  /// out = x W^T (+ bias) (+ residual). x [T, in] compute dtype; out [T, out] compute dtype or f32.
  void linear(TensorView out, TensorView x, const Linear& weights, const LinearCall& call = {});

  /// cos_sin[t, i] = cos(a) * multiplier, cos_sin[t, rotary_dim/2 + i] = sin(a) * multiplier, a = positions[t] *
  /// inv_freq[i], the product rounded to f32. inv_freq [rotary_dim/2] f32.
  void rope_angles(TensorView cos_sin, TensorView positions, TensorView inv_freq, float multiplier);
  /// Source of the rotation (half-split form): Su et al., arXiv:2104.09864. Dims beyond rotary_dim pass unchanged.
  void rope_and_store_kv(const RopeStoreArgs& args, const StepTensors& step, KvLayer kv);

  /// out[t, h] = softmax over visible positions of (q[t,h] . k * scale) v; online softmax over KV tiles cut at absolute
  /// positions, f32. q [T, num_heads * k_dim], out [T, num_heads * v_dim]; causal. Uses the last plan().
  /// Source: Dao, FlashAttention-2, arXiv:2307.08691.
  void attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv, const AttentionParams& params);

  /// out[t, i] = silu(gate_up[t, i]) * gate_up[t, I + i]. gate_up [T, 2 I], out [T, I].
  void gated_activation(TensorView out, TensorView gate_up, Activation activation);

  /// out[r] = x[rows[r]].
  void gather_rows(TensorView out, TensorView x, TensorView rows);

  /// out = sum over p of parts[p] in ascending p (+ bias), f32 sums, rounded once. parts [P, at least T, N] f32 or
  /// out's dtype, of which the first T rows of each part are read; out [T, N]; bias [N] f32 or bf16, undefined: none.
  /// out aliases neither.
  void sum_parts(TensorView out, TensorView parts, TensorView bias = {});
  /// block_out = sum_parts(parts, bias) in hidden's dtype; hidden += block_out; normed = rms_norm(hidden): the bits of
  /// sum_parts and add_rms_norm in one pass. normed and hidden [T, hidden_size] alias neither each other nor parts.
  void add_parts_rms_norm(TensorView normed, TensorView hidden, TensorView parts, TensorView bias, TensorView weight,
                          float eps);

  // ---- head and sampling ----------------------------------------------------------------------------------------
  /// A slot's row of tables.counts from scratch: kInPrompt for the ids of the first num_prompt_tokens, one per later
  /// one. For a sequence that enters the slot or is rewound; pick() counts from there. token_ids are read before it
  /// returns.
  void count_tokens(const SamplingTables& tables, int32_t slot, std::span<const int32_t> token_ids,
                    int64_t num_prompt_tokens);
  /// A slot's row of tables.bias from scratch: fill everywhere, then values[i] at ids[i]. Both are read before it
  /// returns.
  void set_bias(const SamplingTables& tables, int32_t slot, float fill, std::span<const int32_t> ids,
                std::span<const float> values);

  /// logits = hidden head^T and the per-tile partials. hidden [R, hidden_size]; first_id: absolute id of the shard's
  /// first row, a multiple of kVocabTile; ids >= vocab_size are padding and never counted. rows.slots undefined: no
  /// token is chosen from these rows (they are scored); their adjusted logits are the raw ones.
  void lm_head_tiles(const HeadTiles& out, TensorView hidden, const Linear& head, int64_t first_id, int64_t vocab_size,
                     const LogitsRows& rows, const SamplingTables& tables);
  /// Chooses one token per row from the tiles of the whole vocabulary, stores it in last_token[slot] and counts it
  /// where the slot's counts are kept. A forced id is taken as it is. Else, of the slot's row, in vLLM's order:
  ///   x = l + bias (minus infinity: masked), and minus infinity for the row's masked ids
  ///   ids of prompt or generated tokens: x / repetition_penalty where x > 0, x * repetition_penalty elsewhere
  ///   ids generated c > 0 times: x - frequency_penalty * c, then - presence_penalty
  /// each rounded to f32 and kept inside its finite range. Greedy: the largest x, smallest id among equals. Else, on
  /// x / temperature: min-p, top-k (ties of the k-th largest stay), top-p (smallest prefix in order of descending
  /// probability, then ascending id, whose mass reaches p), then inverse CDF in ascending id with the one uniform of
  /// (key, positions[rows.tokens[r]] + 1); kernels/random.h.
  void pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
            const SamplingTables& tables);
  /// The partials of the whole vocabulary, but for tiles.logits, from those of P ranks: gathered [P, kTileWords, R,
  /// most tiles of a shard] i32, as tiles_of_words() describes one rank's.
  void join_tiles(const HeadTiles& tiles, TensorView gathered, int64_t vocab_size);
  /// Chosen in two halves with the bits of pick(): shortlist() on each rank of a group, then, when the lists have been
  /// gathered, pick_listed() on all of them. tiles: the partials of the whole vocabulary, logits [R, ids of the shard]
  /// from first_id on. Rows must be forced, greedy, without filters, or have a top-k of at most kShortlistMaxTopK.
  void shortlist(TensorView list, const HeadTiles& tiles, int64_t first_id, int64_t vocab_size, const StepTensors& step,
                 const SamplingTables& tables);
  /// Whether no row had more ids than its list has room for. lists [P, R, words]. Waits for the stream.
  bool shortlists_fit(TensorView lists);
  /// As pick(); tiles.logits may be undefined.
  void pick_listed(const PickResult& out, const HeadTiles& tiles, TensorView lists, int64_t vocab_size,
                   const StepTensors& step, const SamplingTables& tables);
  /// Log softmax of the raw logits at rows.token_ids, its rank, and num_top others: the most likely in descending order
  /// (ascending id among equals), or the listed ids in their order. tiles: of the whole vocabulary, as for pick().
  void token_logprobs(const LogprobResult& out, const HeadTiles& tiles, int64_t vocab_size, const LogprobRows& rows,
                      const SamplingTables& tables);

 private:
  virtual std::unique_ptr<Linear> do_make_linear(const LinearSpec& spec, std::span<std::byte> storage) = 0;
  virtual std::unique_ptr<Embedding> do_make_embedding(const LinearSpec& spec, std::span<std::byte> storage) = 0;
  virtual std::unique_ptr<KvPool> do_make_kv_pool(const KvSpec& spec, int64_t num_blocks,
                                                  std::span<std::byte> storage) = 0;
  virtual void do_copy_blocks(KvPool& pool, std::span<const BlockCopy> copies) = 0;
  virtual void do_zero_blocks(KvPool& pool, std::span<const int32_t> block_ids) = 0;
  virtual void do_export_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<std::byte> out) = 0;
  virtual void do_import_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<const std::byte> in) = 0;
  /// Default: a copy each. None is empty.
  virtual void do_copy_pieces(std::span<const CopyPiece> pieces);
  virtual void do_embed(TensorView out, const Embedding& table, TensorView token_ids, TensorView last_token,
                        int64_t first_id) = 0;
  virtual void do_rms_norm(TensorView out, TensorView x, TensorView weight, float eps) = 0;
  virtual void do_add_rms_norm(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight,
                               float eps) = 0;
  virtual void do_add(TensorView hidden, TensorView block_out) = 0;
  virtual void do_linear(TensorView out, TensorView x, const Linear& weights, const LinearCall& call) = 0;
  virtual void do_rope_angles(TensorView cos_sin, TensorView positions, TensorView inv_freq, float multiplier) = 0;
  virtual void do_rope_and_store_kv(const RopeStoreArgs& args, const StepTensors& step, KvLayer kv) = 0;
  virtual void do_attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv,
                            const AttentionParams& params) = 0;
  virtual void do_gated_activation(TensorView out, TensorView gate_up, Activation activation) = 0;
  virtual void do_gather_rows(TensorView out, TensorView x, TensorView rows) = 0;
  virtual void do_sum_parts(TensorView out, TensorView parts, TensorView bias) = 0;
  /// Default: sum_parts into normed, then add_rms_norm.
  virtual void do_add_parts_rms_norm(TensorView normed, TensorView hidden, TensorView parts, TensorView bias,
                                     TensorView weight, float eps);
  virtual void do_count_tokens(const SamplingTables& tables, int32_t slot, std::span<const int32_t> token_ids,
                               int64_t num_prompt_tokens) = 0;
  virtual void do_set_bias(const SamplingTables& tables, int32_t slot, float fill, std::span<const int32_t> ids,
                           std::span<const float> values) = 0;
  virtual void do_lm_head_tiles(const HeadTiles& out, TensorView hidden, const Linear& head, int64_t first_id,
                                int64_t vocab_size, const LogitsRows& rows, const SamplingTables& tables) = 0;
  virtual void do_pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
                       const SamplingTables& tables) = 0;
  virtual void do_join_tiles(const HeadTiles& tiles, TensorView gathered, const VocabShards& shards) = 0;
  virtual void do_shortlist(TensorView list, const HeadTiles& tiles, int64_t first_id, int64_t vocab_size,
                            const StepTensors& step, const SamplingTables& tables) = 0;
  virtual bool do_shortlists_fit(TensorView lists) = 0;
  virtual void do_pick_listed(const PickResult& out, const HeadTiles& tiles, TensorView lists, int64_t vocab_size,
                              const StepTensors& step, const SamplingTables& tables) = 0;
  virtual void do_token_logprobs(const LogprobResult& out, const HeadTiles& tiles, int64_t vocab_size,
                                 const LogprobRows& rows, const SamplingTables& tables) = 0;
};

/// Bytes of one block in the canonical layout of export_blocks.
int64_t canonical_block_bytes(const KvSpec& spec);

struct OpsOptions {
  int num_threads = 1;
  std::string cpu_isa = "auto";  ///< auto, avx2, avx512, avx512_bf16
  std::string attention_backend = "auto";  ///< of a CUDA device: auto, reference, paged_mma, paged_wgmma
  /// Of device memory for long contexts in decode, whose splits are computed apart as far as it reaches. Results do not
  /// depend on it.
  int64_t attention_part_bytes = int64_t{64} << 20;
  /// Of a CUDA device: how many decoding sequences whose contexts lie in the same KV blocks read these together, at
  /// most; 1: none do, 0: as many as leave the device busy. Results do not depend on it.
  int attention_mates = 0;
};

/// The backend of a device. Throws Error(kConfig) naming the choices when the CPU lacks the ISA asked for, and
/// Error(kDevice) when this build lacks the device.
std::unique_ptr<Ops> make_ops(Device device, const OpsOptions& options);

}  // namespace tokenmill
