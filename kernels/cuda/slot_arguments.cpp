#include "kernels/cuda/slot_arguments.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill::cuda {

SlotArguments::SlotArguments(Memory& memory) {
  for (Place& place : ring_) place.memory = memory.allocate_host(kMaxIds * int64_t{sizeof(int32_t) + sizeof(float)});
}

SlotArguments::Staged SlotArguments::stage(std::span<const int32_t> ids, std::span<const float> values) {
  TM_ASSERT(std::ssize(ids) <= kMaxIds && (values.empty() || values.size() == ids.size()), "{} ids, {} values",
            ids.size(), values.size());
  const Place& place = ring_[next_];
  if (place.stream != nullptr) place.stream->wait(place.event);
  auto* staged_ids = static_cast<int32_t*>(place.memory.data());
  auto* staged_values = reinterpret_cast<float*>(staged_ids + kMaxIds);
  std::ranges::copy(ids, staged_ids);
  std::ranges::copy(values, staged_values);
  return {staged_ids, staged_values};
}

void SlotArguments::sent(Stream& stream) {
  Place& place = ring_[next_];
  place.stream = &stream;
  place.event = stream.record();
  next_ = (next_ + 1) % ring_.size();
}

}  // namespace tokenmill::cuda
