#include "kernels/emulation/grid.h"

#include <numeric>

#include "kernels/emulation/block/block.h"
#include "kernels/emulation/block/schedule.h"

namespace tokenmill::emulation {

namespace {

/// Visits 0 to count - 1 in the order of the seed: all of them, each once.
class BlockOrder {
 public:
  BlockOrder(Order order, uint64_t count, uint64_t seed) : order_(order), count_(count) {
    if (order != Order::kRandom || count < 3) return;
    first_ = seed % count;
    stride_ = seed / count % count | 1;
    while (std::gcd(stride_, count) != 1) stride_ += 2;
    stride_ %= count;
  }
  uint64_t at(uint64_t i) const {
    if (order_ == Order::kReverse) return count_ - 1 - i;
    return order_ == Order::kForward ? i : (first_ + i * stride_) % count_;
  }

 private:
  Order order_;
  uint64_t count_, first_ = 0, stride_ = 1;
};

uint64_t scramble(uint64_t x) {  // splitmix64: small seeds give unlike orders
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::string check_shape(const LaunchShape& shape) {
  const auto volume = [](const dim3& d) { return static_cast<uint64_t>(d.x) * d.y * d.z; };
  if (volume(shape.grid) == 0 || volume(shape.block) == 0) return "the grid or the block is empty";
  if (shape.block.x > kMaxThreads || shape.block.y > kMaxThreads || shape.block.z > 64 ||
      volume(shape.block) > kMaxThreads) {
    return "the block has " + std::to_string(volume(shape.block)) + " threads; at most " + std::to_string(kMaxThreads) +
           " (and 64 in z) are allowed";
  }
  if (shape.dynamic_smem > kMaxBlockShared) {
    return std::to_string(shape.dynamic_smem) + " bytes of dynamic shared memory; a block has at most " +
           std::to_string(kMaxBlockShared);
  }
  return "";
}

/// This OS thread's block: its stacks are kept from launch to launch.
Block& own_block() {
  static thread_local std::unique_ptr<Block> block;  // a third of a megabyte, for threads that launch only
  if (!block) block = std::make_unique<Block>();
  return *block;
}

}  // namespace

std::optional<std::string> run_grid(const LaunchShape& shape, const std::function<void()>& thread_body, uint64_t seed) {
  const std::string prefix = std::string("kernel ") + shape.name + ": ";
  if (current_block) return prefix + "launched from inside a kernel, which the emulator does not do";
  if (const std::string wrong = check_shape(shape); !wrong.empty()) return prefix + wrong;
  Block& block = own_block();
  current_block = &block;
  block.order = seed == 0 ? Order::kForward : seed == 1 ? Order::kReverse : Order::kRandom;
  block.random_state = scramble(seed) | 1;
  block.thread_body = &thread_body;
  block.error.clear();
  sanitizer::adopt_current(block.host_stack);
  sanitizer::release(&block.grid_start);
  const dim3& grid = shape.grid;
  const uint64_t num_blocks = static_cast<uint64_t>(grid.x) * grid.y * grid.z;
  const BlockOrder order(block.order, num_blocks, scramble(seed));
  for (uint64_t i = 0; i < num_blocks && !block.failed(); ++i) {
    const uint64_t at = order.at(i);
    block.index = {.block = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                             static_cast<unsigned>(at / grid.x / grid.y)},
                   .block_size = shape.block,
                   .grid_size = grid};
    run_block(block, shape.block, shape.dynamic_smem);
  }
  sanitizer::acquire(block.end_token());
  sanitizer::acquire(block.previous_end_token());
  current_block = nullptr;
  current_thread = nullptr;
  if (block.failed()) return prefix + block.error;
  return std::nullopt;
}

}  // namespace tokenmill::emulation
