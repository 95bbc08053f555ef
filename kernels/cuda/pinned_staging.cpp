#include "kernels/cuda/pinned_staging.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/check.h"

namespace tokenmill::cuda {

PinnedStaging::PinnedStaging(Memory& memory, Stream& stream, int64_t chunk_bytes) : stream_(stream) {
  TM_ASSERT(chunk_bytes > 0, "chunks of {} bytes", chunk_bytes);
  for (Half& half : halves_) half.buffer = memory.allocate_host(chunk_bytes);
}

PinnedStaging::~PinnedStaging() {
  // The halves must not be freed while they are read. What failed surfaces where the stream is used next.
  try {
    for (const Half& half : halves_) {
      if (half.sent != 0) stream_.wait(half.sent);
    }
  } catch (...) {
  }
}

void PinnedStaging::upload(void* destination, std::span<const std::byte> source) {
  auto* target = static_cast<std::byte*>(destination);
  while (!source.empty()) {
    Half& half = halves_[next_];
    next_ = 1 - next_;
    if (half.sent != 0) stream_.wait(half.sent);
    const size_t piece = std::min(source.size(), half.buffer.bytes().size());
    std::memcpy(half.buffer.data(), source.data(), piece);
    stream_.copy(target, half.buffer.data(), static_cast<int64_t>(piece));
    half.sent = stream_.record();
    target += piece;
    source = source.subspan(piece);
  }
}

}  // namespace tokenmill::cuda
