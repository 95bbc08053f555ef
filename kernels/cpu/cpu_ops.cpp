#include "kernels/cpu/cpu_ops.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/core/check.h"
#include "kernels/cpu/onednn_linear.h"

namespace tokenmill::cpu {

CpuOps::CpuOps(Isa isa, int num_threads)
    : isa_(isa),
      team_(num_threads),
      onednn_(std::make_unique<OnednnProducts>("brg")),
      thread_scratch_(static_cast<size_t>(team_.num_threads())) {}

CpuOps::~CpuOps() = default;

std::string CpuOps::describe() const {
  const int n = team_.num_threads();
  return fmt::format("cpu {}, {} thread{}", to_string(isa_), n, n == 1 ? "" : "s");
}

std::unique_ptr<KvPool> CpuOps::do_make_kv_pool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage) {
  return std::make_unique<CpuKvPool>(spec, num_blocks, storage);
}

namespace {

CpuKvPool& cpu_pool(KvPool& pool) {
  auto* own = dynamic_cast<CpuKvPool*>(&pool);
  TM_ASSERT(own != nullptr, "a KV pool of another device");
  return *own;
}

void copy_one(const CpuKvPool& pool, BlockCopy copy) {
  const auto from = pool.block(copy.source), to = pool.block(copy.destination);
  std::memcpy(to.data(), from.data(), from.size());
}

void zero_one(const CpuKvPool& pool, int32_t id) {
  const auto block = pool.block(id);
  std::memset(block.data(), 0, block.size());
}

}  // namespace

void CpuOps::do_copy_blocks(KvPool& pool, std::span<const BlockCopy> copies) {
  CpuKvPool& own = cpu_pool(pool);
  if (stream_.capturing()) {
    stream_.enqueue([&own, list = std::vector(copies.begin(), copies.end())] {
      for (const BlockCopy copy : list) copy_one(own, copy);
    });
    return;
  }
  stream_.submit([&] {
    team_.run_sized(static_cast<int64_t>(copies.size()) * own.layout().block_bytes / 64, [&](int thread) {
      const auto range = team_.share(static_cast<int64_t>(copies.size()), thread);
      for (int64_t i = range.begin; i < range.end; ++i) copy_one(own, copies[static_cast<size_t>(i)]);
    });
  });
}

void CpuOps::do_zero_blocks(KvPool& pool, std::span<const int32_t> block_ids) {
  CpuKvPool& own = cpu_pool(pool);
  if (stream_.capturing()) {
    stream_.enqueue([&own, list = std::vector(block_ids.begin(), block_ids.end())] {
      for (const int32_t id : list) zero_one(own, id);
    });
    return;
  }
  stream_.submit([&] {
    for (const int32_t id : block_ids) zero_one(own, id);
  });
}

void CpuOps::do_export_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<std::byte> out) {
  stream_.synchronize();
  const int64_t bytes = canonical_block_bytes(pool.spec());
  for (size_t i = 0; i < block_ids.size(); ++i) {
    cpu_pool(pool).export_block(block_ids[i], out.data() + static_cast<int64_t>(i) * bytes);
  }
}

void CpuOps::do_import_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<const std::byte> in) {
  stream_.synchronize();
  const int64_t bytes = canonical_block_bytes(pool.spec());
  for (size_t i = 0; i < block_ids.size(); ++i) {
    cpu_pool(pool).import_block(block_ids[i], in.data() + static_cast<int64_t>(i) * bytes);
  }
}

}  // namespace tokenmill::cpu
