#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace tokenmill {

/// A ring of slots in memory that ranks share: chunks 0, 1, ... pass through it, each filled once and then used by
/// every consumer that needs it. Fillers and users may be threads or processes; each sees the memory at its own
/// address. Waits give the core away. Once stopped, every wait ends at once.
class ChunkRing {
 public:
  struct Shape {
    int64_t slot_bytes = 0;  ///< the largest chunk
    int num_slots = 1;
    int num_consumers = 1;
    int64_t num_bytes() const;  ///< of memory
  };
  /// memory: shape.num_bytes(), 64-byte aligned, all zeros before the first user touches it. watch: called now and then
  /// in long waits, from any thread that waits; what it throws ends the wait.
  ChunkRing(std::span<std::byte> memory, const Shape& shape, std::function<void()> watch = {})
      : memory_(memory), shape_(shape), watch_(std::move(watch)) {}

  /// The slot of a chunk.
  std::span<std::byte> slot(uint64_t chunk) const;

  /// The chunk's one filler: waits until its slot may be written. False: the ring was stopped.
  bool wait_free(uint64_t chunk) const;
  bool is_free(uint64_t chunk) const;
  void publish(uint64_t chunk) const;

  /// A consumer: waits until the chunk lies in its slot. False: the ring was stopped.
  bool wait_filled(uint64_t chunk) const;
  bool is_filled(uint64_t chunk) const;
  /// The consumer needs no chunk below `next` any more. It may start with the first chunk that it needs, and must end
  /// with the number of chunks. Never goes back.
  void release_below(int consumer, uint64_t next) const;

  void stop() const;
  bool stopped() const;

 private:
  uint64_t& word(int index) const;
  /// Waits for `ready` unless the ring is stopped.
  template <typename Ready>
  bool wait(Ready&& ready) const;

  std::span<std::byte> memory_;
  Shape shape_;
  std::function<void()> watch_;
};

}  // namespace tokenmill
