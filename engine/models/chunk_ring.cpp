// Memory: one 64-byte line each for the stop flag, for each slot (the number of the chunk in it + 1) and for each
// consumer (the first chunk it still needs); then the slots, each on a page.
#include "engine/models/chunk_ring.h"

#include <algorithm>
#include <atomic>

#include "parallel/mpi.h"

namespace tokenmill {
namespace {

constexpr int64_t kLine = 64, kPage = 4096;
constexpr double kMaxSleep_s = 200e-6;
constexpr int kPausesPerWatch = 1000;  // about a quarter of a second

int64_t rounded(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
int64_t control_bytes(const ChunkRing::Shape& shape) {
  return rounded((1 + shape.num_slots + shape.num_consumers) * kLine);
}

}  // namespace

int64_t ChunkRing::Shape::num_bytes() const { return control_bytes(*this) + num_slots * rounded(slot_bytes); }

uint64_t& ChunkRing::word(int index) const { return *reinterpret_cast<uint64_t*>(memory_.data() + index * kLine); }

std::span<std::byte> ChunkRing::slot(uint64_t chunk) const {
  const auto index = static_cast<int64_t>(chunk % static_cast<uint64_t>(shape_.num_slots));
  return memory_.subspan(static_cast<size_t>(control_bytes(shape_) + index * rounded(shape_.slot_bytes)),
                         static_cast<size_t>(shape_.slot_bytes));
}

template <typename Ready>
bool ChunkRing::wait(Ready&& ready) const {
  parallel::BackOff back_off(kMaxSleep_s);
  for (int pauses = 1; !ready(); ++pauses, back_off.pause()) {
    if (stopped()) return false;
    if (watch_ && pauses % kPausesPerWatch == 0) watch_();
  }
  return !stopped();
}

bool ChunkRing::is_free(uint64_t chunk) const {
  const auto slots = static_cast<uint64_t>(shape_.num_slots);
  for (int consumer = 0; consumer < shape_.num_consumers; ++consumer) {
    const std::atomic_ref needed(word(1 + shape_.num_slots + consumer));
    if (needed.load(std::memory_order_acquire) + slots <= chunk) return false;
  }
  return true;
}

bool ChunkRing::wait_free(uint64_t chunk) const {
  return wait([&] { return is_free(chunk); });
}

void ChunkRing::publish(uint64_t chunk) const {
  const auto slot = static_cast<int>(chunk % static_cast<uint64_t>(shape_.num_slots));
  std::atomic_ref(word(1 + slot)).store(chunk + 1, std::memory_order_release);
}

bool ChunkRing::is_filled(uint64_t chunk) const {
  const auto slot = static_cast<int>(chunk % static_cast<uint64_t>(shape_.num_slots));
  return std::atomic_ref(word(1 + slot)).load(std::memory_order_acquire) == chunk + 1;
}

bool ChunkRing::wait_filled(uint64_t chunk) const {
  return wait([&] { return is_filled(chunk); });
}

void ChunkRing::release_below(int consumer, uint64_t next) const {
  std::atomic_ref(word(1 + shape_.num_slots + consumer)).store(next, std::memory_order_release);
}

void ChunkRing::stop() const { std::atomic_ref(word(0)).store(1, std::memory_order_release); }
bool ChunkRing::stopped() const { return std::atomic_ref(word(0)).load(std::memory_order_acquire) != 0; }

}  // namespace tokenmill
