#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cpu/attention_task.h"
#include "kernels/cpu/cpu_kv_pool.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/thread_team.h"
#include "kernels/ops.h"

namespace tokenmill::cpu {

class OnednnProducts;

/// Part of a sequence's tokens in this step: what one attention task works on.
struct AttentionUnit {
  int64_t sequence;
  int64_t token_begin, num_tokens;
  int64_t first_position, last_position;
};

/// Where the state of one split goes.
struct SplitTotal {
  float* state;
  bool is_first;  ///< nothing has been written there yet
};

/// Ops on host memory. Each family's do_ functions stand in its own file (norm.cpp, attention.cpp, ...), next to the
/// kernels they choose between. Work is cut into fixed ranges over the thread team; no sum crosses a range.
class CpuOps final : public Ops {
 public:
  CpuOps(Isa isa, int num_threads);
  ~CpuOps() override;

  Device device() const override { return {DeviceKind::kCpu, 0}; }
  std::string describe() const override;
  std::string numerics() const override { return "cpu-" + to_string(isa_); }
  std::string weight_layout() const override;
  bool supports(DType dtype) const override { return dtype == DType::kF32 || dtype == DType::kBF16; }
  Stream& stream() override { return stream_; }
  Memory& memory() override { return memory_; }
  OpTimes op_times() const override { return stream_.op_times(); }
  int64_t workspace_bytes(const WorkspaceRequest& request) const override;
  /// Of all threads together, now.
  int64_t workspace_in_use() const;

  int64_t linear_bytes(const LinearSpec& spec) override;
  int64_t embedding_bytes(const LinearSpec& spec) override;
  std::unique_ptr<WeightSink> make_vector_sink(TensorView out, const std::vector<LinearPart>& parts) override;
  int64_t kv_block_bytes(const KvSpec& spec) override { return KvPageLayout(spec).block_bytes; }
  void plan(const StepTensors& step) override;

  Isa isa() const { return isa_; }
  ThreadTeam& team() { return team_; }
  /// The calling thread's scratch inside team().run.
  Scratch& thread_scratch(int thread) { return thread_scratch_[static_cast<size_t>(thread)]; }
  /// Scratch that all threads of one operation share.
  Scratch& shared_scratch() { return shared_scratch_; }

 private:
  /// Enqueues function(row, scratch) for all rows, each on one thread; operations: of a row, as for run_sized().
  template <typename Function>
  void for_each_row(int64_t num_rows, int64_t operations, Function function) {
    stream_.submit([=, this] {
      team_.run_sized(num_rows * operations, [&](int thread) {
        const auto range = team_.share(num_rows, thread);
        for (int64_t r = range.begin; r < range.end; ++r) function(r, thread_scratch(thread));
      });
    });
  }
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

  void make_plan(const StepTensors& step);
  void run_attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv, const AttentionParams& params);
  void attend(std::span<AttentionTask> tasks, int64_t operations);
  void attend_by_split(int64_t operations);
  int64_t attention_workspace_bytes(const WorkspaceRequest& request) const;

  Isa isa_;
  CpuMemory memory_;
  CpuStream stream_;
  ThreadTeam team_;
  std::unique_ptr<OnednnProducts> onednn_;
  std::vector<Scratch> thread_scratch_;
  Scratch shared_scratch_;
  std::vector<AttentionUnit> units_;  // of the last plan(), dearest first
  std::vector<AttentionTask> attention_tasks_, split_tasks_;
  std::vector<SplitTotal> split_totals_;  // one per split_tasks_
};

}  // namespace tokenmill::cpu
