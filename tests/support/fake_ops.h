#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace tokenmill::test {

/// A stream that runs nothing until it is waited for: work read too early, or a host buffer reused too early, shows.
class FakeStream : public Stream {
 public:
  void enqueue(std::function<void()> function) override;
  void copy(void* destination, const void* source, int64_t num_bytes) override;
  Event record() override { return enqueued_; }
  void wait(Event event) override;
  bool done(Event event) override { return event <= finished_; }
  void synchronize() override { wait(enqueued_); }
  void begin_capture() override;
  std::unique_ptr<Recording> end_capture() override;
  void replay(Recording& recording) override;

 private:
  std::deque<std::function<void()>> queue_;
  Event enqueued_ = 0, finished_ = 0;
  bool capturing_ = false;
  std::vector<std::function<void()>> captured_;
};

/// Plain host memory, zeroed.
class FakeMemory : public Memory {
 public:
  explicit FakeMemory(int64_t total_bytes) : total_(total_bytes) {}
  Buffer allocate(int64_t num_bytes) override;
  Buffer allocate_host(int64_t num_bytes) override { return allocate(num_bytes); }
  int64_t total_bytes() const override { return total_; }
  int64_t used_bytes() const override { return used_; }
  int64_t peak_bytes() const override { return peak_; }
  int64_t allocations() const { return allocations_; }

 private:
  int64_t total_, used_ = 0, peak_ = 0, allocations_ = 0;
};

/// A second implementation of Ops in scalar loops, float32 and bfloat16, with nothing of kernels/cpu: it keeps the seam
/// honest and serves tests of the layers above. Sums are f64, so its results differ from the CPU device's by rounding.
class FakeOps final : public Ops {
 public:
  explicit FakeOps(int64_t total_bytes = int64_t{1} << 32) : memory_(total_bytes) {}

  Device device() const override { return {DeviceKind::kCpu, 0}; }
  std::string describe() const override { return "fake"; }
  std::string numerics() const override { return "fake-f64"; }
  std::string weight_layout() const override { return "fake"; }
  bool supports(DType dtype) const override { return dtype == DType::kF32 || dtype == DType::kBF16; }
  Stream& stream() override { return stream_; }
  FakeMemory& memory() override { return memory_; }
  int64_t workspace_bytes(const WorkspaceRequest&) const override { return 0; }

  int64_t linear_bytes(const LinearSpec& spec) override;
  int64_t embedding_bytes(const LinearSpec& spec) override { return linear_bytes(spec); }
  std::unique_ptr<WeightSink> make_vector_sink(TensorView out, const std::vector<LinearPart>& parts) override;
  int64_t kv_block_bytes(const KvSpec& spec) override { return canonical_block_bytes(spec); }
  void plan(const StepTensors& step) override;

 private:
  std::unique_ptr<Linear> do_make_linear(const LinearSpec& spec, std::span<std::byte> storage) override;
  std::unique_ptr<Embedding> do_make_embedding(const LinearSpec& spec, std::span<std::byte> storage) override;
  std::unique_ptr<KvPool> do_make_kv_pool(const KvSpec& spec, int64_t num_blocks,
                                          std::span<std::byte> storage) override;
  void do_copy_blocks(KvPool& pool, std::span<const BlockCopy> copies) override;
  void do_zero_blocks(KvPool& pool, std::span<const int32_t> block_ids) override;
  void do_export_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<std::byte> out) override;
  void do_import_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<const std::byte> in) override;
  void do_embed(TensorView out, const Embedding& table, TensorView token_ids, TensorView last_token,
                int64_t first_id) override;
  void do_rms_norm(TensorView out, TensorView x, TensorView weight, float eps) override;
  void do_add_rms_norm(TensorView normed, TensorView hidden, TensorView block_out, TensorView weight,
                       float eps) override;
  void do_add(TensorView hidden, TensorView block_out) override;
  void do_linear(TensorView out, TensorView x, const Linear& weights, const LinearCall& call) override;
  void do_rope_angles(TensorView cos_sin, TensorView positions, TensorView inv_freq, float multiplier) override;
  void do_rope_and_store_kv(const RopeStoreArgs& args, const StepTensors& step, KvLayer kv) override;
  void do_attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv,
                    const AttentionParams& params) override;
  void do_gated_activation(TensorView out, TensorView gate_up, Activation activation) override;
  void do_gather_rows(TensorView out, TensorView x, TensorView rows) override;
  void do_sum_parts(TensorView out, TensorView parts, TensorView bias) override;
  void do_count_tokens(const SamplingTables& tables, int32_t slot, std::span<const int32_t> token_ids,
                       int64_t num_prompt_tokens) override;
  void do_set_bias(const SamplingTables& tables, int32_t slot, float fill, std::span<const int32_t> ids,
                   std::span<const float> values) override;
  void do_lm_head_tiles(const HeadTiles& out, TensorView hidden, const Linear& head, int64_t first_id,
                        int64_t vocab_size, const LogitsRows& rows, const SamplingTables& tables) override;
  void do_pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
               const SamplingTables& tables) override;
  void do_join_tiles(const HeadTiles& tiles, TensorView gathered, const VocabShards& shards) override;
  void do_shortlist(TensorView list, const HeadTiles& tiles, int64_t first_id, int64_t vocab_size,
                    const StepTensors& step, const SamplingTables& tables) override;
  bool do_shortlists_fit(TensorView lists) override;
  void do_pick_listed(const PickResult& out, const HeadTiles& tiles, TensorView lists, int64_t vocab_size,
                      const StepTensors& step, const SamplingTables& tables) override;
  void do_token_logprobs(const LogprobResult& out, const HeadTiles& tiles, int64_t vocab_size, const LogprobRows& rows,
                         const SamplingTables& tables) override;

  FakeStream stream_;
  FakeMemory memory_;
};

}  // namespace tokenmill::test
