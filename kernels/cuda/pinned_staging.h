#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/device/memory.h"
#include "kernels/device/stream.h"

namespace tokenmill::cuda {

/// Brings bytes of ordinary host memory (file buffers, mapped files) to the device through two pinned halves, so that
/// one is filled while the other is on its way. Keeps its stream busy in order: what is enqueued on it later sees the
/// bytes.
class PinnedStaging {
 public:
  static constexpr int64_t kDefaultChunk = int64_t{4} << 20;
  PinnedStaging(Memory& memory, Stream& stream, int64_t chunk_bytes = kDefaultChunk);
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  /// The source may change as soon as this returns.
  void upload(void* destination, std::span<const std::byte> source);

 private:
  struct Half {
    Buffer buffer;
    Stream::Event sent = 0;  // its last copy; 0: none
  };
  Stream& stream_;
  std::array<Half, 2> halves_;
  size_t next_ = 0;
};

}  // namespace tokenmill::cuda
