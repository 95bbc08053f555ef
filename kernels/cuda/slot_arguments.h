#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "kernels/device/memory.h"
#include "kernels/device/stream.h"

namespace tokenmill::cuda {

/// Lists of ids (and values) on their way to kernels that read them from pinned host memory. A ring: a place is used
/// again when the kernels that read it have run.
class SlotArguments {
 public:
  static constexpr int64_t kMaxIds = 65536;  ///< of one list; longer ones go in pieces

  /// What a kernel may read.
  struct Staged {
    const int32_t* ids;
    const float* values;
  };

  explicit SlotArguments(Memory& memory);
  /// Waits for the ring's next place and fills it. values: as many as ids, or none.
  Staged stage(std::span<const int32_t> ids, std::span<const float> values = {});
  /// The kernel that reads what was staged last is on the stream. Always the same stream.
  void sent(Stream& stream);

 private:
  struct Place {
    Buffer memory;  // kMaxIds ids, then as many values
    Stream* stream = nullptr;
    Stream::Event event = 0;
  };
  std::array<Place, 4> ring_;
  size_t next_ = 0;
};

}  // namespace tokenmill::cuda
