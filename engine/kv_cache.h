#pragma once
#include <memory>
#include <vector>

#include "kernels/ops.h"

namespace tokenmill {

/// The device tensors behind the block ids: one pool per KV group, taken once at start-up.
class KvCache {
 public:
  /// num_blocks per group. Throws Error(kDevice) when the memory cannot be had.
  KvCache(Ops& ops, const std::vector<KvSpec>& specs, const std::vector<int64_t>& num_blocks);
  std::vector<KvPool*> pools() const;
  KvPool& pool(int group) const { return *pools_[group]; }

 private:
  std::vector<Buffer> storage_;
  std::vector<std::unique_ptr<KvPool>> pools_;
};

}  // namespace tokenmill
