#pragma once
#include <vector>

#include "kernels/cuda/attention_plan.h"
#include "kernels/cuda/cuda_stream.h"

namespace tokenmill::test {

/// The work lists of a step, on the host.
struct PlannedAttention {
  std::vector<cuda::AttentionItem> items;
  std::vector<cuda::AttentionMerge> merges;
  std::vector<cuda::AttentionShare> shares;  // one more than sequences

  /// Items of rows of more sequences than one.
  int64_t num_shared() const {
    int64_t count = 0;
    for (const cuda::AttentionItem& item : items) count += item.num_rows > item.rows_each ? 1 : 0;
    return count;
  }
};

/// step: in memory that the device reaches.
inline PlannedAttention planned_attention(Device device, const cuda::AttentionShape& shape, const StepTensors& step) {
  cuda::CudaMemory memory(device);
  cuda::CudaStream stream(device);
  cuda::AttentionPlans plans(memory);
  plans.start_step();
  const cuda::AttentionWork work = plans.work(shape, step, stream.handle());
  const auto fetch = [&]<typename T>(const T* from, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    stream.copy(values.data(), from, count * static_cast<int64_t>(sizeof(T)));
    stream.synchronize();
    return values;
  };
  const cuda::AttentionCounts counts = fetch(work.counts, 1).front();
  return {fetch(work.items, counts.items), fetch(work.merges, counts.merges),
          fetch(work.shares, step.seq_lens.cols() + 1)};
}

}  // namespace tokenmill::test
