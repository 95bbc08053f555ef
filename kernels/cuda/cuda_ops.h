#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/attention_backend.h"
#include "kernels/cuda/attention_paged.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/fault.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matmul.h"
#include "kernels/cuda/slot_arguments.h"
#include "kernels/cuda/weight_upload.h"
#include "kernels/device/cuda_check.h"
#include "kernels/ops.h"

namespace tokenmill::cuda {

/// Ops on one CUDA device, sm_80 and later. Each family's do_ functions stand in its own file, next to its kernels. A
/// step enqueues, and reads nothing back; what a kernel finds wrong in its data surfaces at the next wait (fault.h).
class CudaOps final : public Ops {
 public:
  /// Throws Error(kConfig) when options names no attention backend.
  CudaOps(Device device, const OpsOptions& options);
  ~CudaOps() override;

  Device device() const override { return memory_.device(); }
  std::string describe() const override;
  std::string numerics() const override;
  std::string weight_layout() const override { return "cuda, rows"; }
  bool supports(DType dtype) const override {
    return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
  }
  Stream& stream() override { return stream_; }
  Memory& memory() override { return memory_; }
  int64_t workspace_bytes(const WorkspaceRequest& request) const override;
  void reserve(const WorkspaceRequest& request) override;

  int64_t linear_bytes(const LinearSpec& spec) override;
  int64_t embedding_bytes(const LinearSpec& spec) override { return linear_bytes(spec); }
  std::unique_ptr<WeightSink> make_vector_sink(TensorView out, const std::vector<LinearPart>& parts) override;
  int64_t kv_block_bytes(const KvSpec& spec) override;
  void plan(const StepTensors&) override;

 private:
  /// One block per row (blocks x threads) on the stream.
  gpu::Launch row_launch(int64_t rows, int threads, const char* name) const {
    return {.grid = dim3(static_cast<unsigned>(rows)),
            .block = dim3(static_cast<unsigned>(threads)),
            .smem = 0,
            .stream = stream_.handle(),
            .name = name};
  }
  FaultWord fault_word() const { return {static_cast<FaultRecord*>(fault_.data())}; }
  /// Throws Error(kInternal) for a fault, and forgets it.
  void check_fault() const;
  /// out [T, N] f32 += bias [N] of another dtype.
  void add_bias(TensorView out, TensorView bias);
  AttentionBackend attention_backend(const KvSpec& spec) const;
  /// nullptr: reference.
  PagedAttention* paged_attention(const KvSpec& spec) const;
  void attention_reference(TensorView out, TensorView q, const StepTensors& step, KvLayer kv,
                           const AttentionParams& params);

  std::unique_ptr<Linear> do_make_linear(const LinearSpec& spec, std::span<std::byte> storage) override;
  std::unique_ptr<Embedding> do_make_embedding(const LinearSpec& spec, std::span<std::byte> storage) override;
  std::unique_ptr<KvPool> do_make_kv_pool(const KvSpec& spec, int64_t num_blocks,
                                          std::span<std::byte> storage) override;
  void do_copy_blocks(KvPool& pool, std::span<const BlockCopy> copies) override;
  void do_copy_pieces(std::span<const CopyPiece> pieces) override;
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
  void do_add_parts_rms_norm(TensorView normed, TensorView hidden, TensorView parts, TensorView bias, TensorView weight,
                             float eps) override;
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

  CudaMemory memory_;
  CudaStream stream_;
  Buffer fault_;  // a FaultRecord, pinned
  Matmul matmul_;
  SlotArguments slot_arguments_;
  WeightUpload upload_;
  DeviceFacts facts_;
  AttentionBackend asked_attention_;
  std::map<AttentionBackend, std::unique_ptr<PagedAttention>> paged_attention_;
};

}  // namespace tokenmill::cuda
