// What the operations keep in scratch memory at most: the largest of them, since they take turns.
#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/onednn_linear.h"
#include "kernels/cpu/sampling_kernels.h"

namespace tokenmill::cpu {
namespace {

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kRowPadding = 16;  // elements behind a copied row, at most

}  // namespace

int64_t CpuOps::workspace_bytes(const WorkspaceRequest& request) const {
  const int64_t threads = team_.num_threads();
  const int64_t tokens = onednn_row_bucket(request.max_num_tokens), rows = onednn_row_bucket(request.max_logits_rows);
  // Activations widened to f32, or padded with rows.
  const int64_t copied =
      std::max(tokens * (request.widest_input + kRowPadding), rows * (request.hidden_size + kRowPadding));
  int64_t per_thread = std::max(kGemmScratchFloats, pick_scratch_floats(request.vocab_size));
  if (isa_ == Isa::kAvx512Bf16) {  // products of oneDNN wait for their epilogue
    const int64_t columns = std::max(request.widest_output, request.vocab_size);
    const int64_t at_once = std::min(std::max(tokens, rows), kOnednnRowLimit);
    per_thread = std::max(per_thread, at_once * ((columns + threads - 1) / threads + kVocabTile));
  }
  return (copied + threads * per_thread) * kFloat + attention_workspace_bytes(request);
}

int64_t CpuOps::workspace_in_use() const {
  int64_t bytes = shared_scratch_.num_bytes();
  for (const Scratch& scratch : thread_scratch_) bytes += scratch.num_bytes();
  return bytes;
}

}  // namespace tokenmill::cpu
