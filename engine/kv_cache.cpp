#include "engine/kv_cache.h"

namespace tokenmill {

KvCache::KvCache(Ops& ops, const std::vector<KvSpec>& specs, const std::vector<int64_t>& num_blocks) {
  TM_ASSERT(specs.size() == num_blocks.size());
  for (size_t g = 0; g < specs.size(); ++g) {
    storage_.push_back(ops.memory().allocate(ops.kv_block_bytes(specs[g]) * num_blocks[g]));
    const std::span<std::byte> bytes(static_cast<std::byte*>(storage_.back().data()), storage_.back().num_bytes());
    pools_.push_back(ops.make_kv_pool(specs[g], num_blocks[g], bytes));
  }
}

std::vector<KvPool*> KvCache::pools() const {
  std::vector<KvPool*> out;
  for (const auto& pool : pools_) out.push_back(pool.get());
  return out;
}

}  // namespace tokenmill
