// Copies and fills. Every range is checked against the allocation it starts in, when it is asked for and again when it
// runs; pageable host memory makes an asynchronous copy wait where a device would stage it.
#include <cstring>
#include <memory>

#include "kernels/emulation/runtime/scheduler.h"

namespace tokenmill::emulation {
namespace {

/// rows of width bytes, pitch bytes apart; one row for a plain copy.
struct Range {
  const void* address;
  size_t width, pitch, rows;
  size_t span() const { return rows == 0 || width == 0 ? 0 : (rows - 1) * pitch + width; }
};

enum class Side { kDevice, kPinned, kPageable };

/// Where the range lies; error text if it leaves its allocation.
std::optional<std::string> locate(const Range& range, const char* role, Side& side) {
  const auto found = find_allocation(range.address);
  side = !found ? Side::kPageable : found->allocation.kind == MemoryKind::kDevice ? Side::kDevice : Side::kPinned;
  if (!found) return std::nullopt;
  const size_t offset = reinterpret_cast<uintptr_t>(range.address) - found->start;
  if (offset + range.span() <= found->allocation.num_bytes) return std::nullopt;
  return fmt::format("{} covers {} bytes from offset {} of an allocation of {} bytes", role, range.span(), offset,
                     found->allocation.num_bytes);
}

bool kind_fits(cudaMemcpyKind kind, Side to, Side from) {
  const bool to_device = to == Side::kDevice, from_device = from == Side::kDevice;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

const char* name_of(Side side) {
  return side == Side::kDevice ? "device memory" : side == Side::kPinned ? "pinned memory" : "host memory";
}

std::optional<std::string> check_copy(const Range& to, const Range& from, cudaMemcpyKind kind, Side& to_side,
                                      Side& from_side) {
  if (to.span() == 0) return std::nullopt;
  if (to.address == nullptr || from.address == nullptr) return "a null pointer";
  if (auto text = locate(to, "the destination", to_side)) return text;
  if (auto text = locate(from, "the source", from_side)) return text;
  if (kind_fits(kind, to_side, from_side)) return std::nullopt;
  return fmt::format("kind {} does not fit a copy from {} to {}", static_cast<int>(kind), name_of(from_side),
                     name_of(to_side));
}

void move_rows(const Range& to, const Range& from) {
  for (size_t row = 0; row < to.rows; ++row) {
    std::memmove(static_cast<char*>(const_cast<void*>(to.address)) + row * to.pitch,
                 static_cast<const char*>(from.address) + row * from.pitch, to.width);
  }
}

/// The copy as work of a stream; memory that was freed meanwhile is an error there, as on a device.
Operation copy_operation(Range to, Range from, cudaMemcpyKind kind) {
  return [=]() -> Status {
    {
      Lock lock(state().mutex);
      Side to_side = Side::kPageable, from_side = Side::kPageable;
      if (auto text = check_copy(to, from, kind, to_side, from_side)) return {cudaErrorIllegalAddress, *text};
    }
    move_rows(to, from);
    return {};
  };
}

/// The source's bytes of now; for pageable memory, which the caller may change as soon as the call returns.
Operation staged_copy_operation(Range to, Range from) {
  auto staged = std::make_shared<std::vector<char>>(from.rows * from.width);
  const Range stage{staged->data(), from.width, from.width, from.rows};
  move_rows(stage, from);
  return [=]() -> Status {
    move_rows(to, Range{staged->data(), stage.width, stage.pitch, stage.rows});
    return {};
  };
}

cudaError_t copy_async(Call& call, Range to, Range from, cudaMemcpyKind kind, cudaStream_t handle) {
  Stream* stream = call.stream(handle);
  if (stream == nullptr) return call.error();
  Side to_side = Side::kPageable, from_side = Side::kPageable;
  if (const auto text = check_copy(to, from, kind, to_side, from_side))
    return call.fail(cudaErrorInvalidValue, "{}", *text);
  const bool pageable = to_side == Side::kPageable || from_side == Side::kPageable;
  if (to.span() == 0 || !pageable)
    return append(call, *stream, NodeKind::kCopy, "copy", copy_operation(to, from, kind));
  if (stream->capture) {
    stream->capture->invalid = true;
    return call.fail(cudaErrorStreamCaptureUnsupported, "a copy from or to pageable host memory cannot be captured");
  }
  ++state().counters.pageable_copies;
  if (from_side == Side::kPageable && to_side == Side::kDevice) {
    return append(call, *stream, NodeKind::kCopy, "copy", staged_copy_operation(to, from));
  }
  if (const cudaError_t error = append(call, *stream, NodeKind::kCopy, "copy", copy_operation(to, from, kind)))
    return error;
  drain_stream(call.lock(), *stream);
  return cudaSuccess;
}

cudaError_t fill_async(Call& call, void* pointer, int value, size_t num_bytes, Stream* stream) {
  if (stream == nullptr) return call.error();
  Side side = Side::kPageable;
  const Range range{pointer, num_bytes, num_bytes, 1};
  if (num_bytes != 0) {
    if (const auto text = locate(range, "the fill", side)) return call.fail(cudaErrorInvalidValue, "{}", *text);
    if (side == Side::kPageable) return call.fail(cudaErrorInvalidValue, "{} is not device memory", pointer);
  }
  return append(call, *stream, NodeKind::kFill, "fill", [=]() -> Status {
    if (num_bytes == 0) return {};
    {
      Lock lock(state().mutex);
      Side now = Side::kPageable;
      const auto text = locate(range, "the fill", now);
      if (text || now == Side::kPageable) return {cudaErrorIllegalAddress, text.value_or("the memory was freed")};
    }
    std::memset(pointer, value, num_bytes);
    return {};
  });
}

/// The rest of a blocking call: its work is on the default stream, and the host waits for it.
cudaError_t wait_for_default_stream(Call& call, cudaError_t error) {
  if (error != cudaSuccess) return error;
  ++state().counters.blocking_copies;
  drain_stream(call.lock(), *call.stream(nullptr));
  return cudaSuccess;
}

/// A blocking call is forbidden while its own default stream would order a capturing stream, whatever the mode.
template <typename Body>
cudaError_t blocking_api(const char* name, Body&& body) {
  Call call(name);
  if (const cudaError_t error = call.begin(InCapture::kAllowed)) return error;
  if (const cudaError_t error = refuse_implicit_capture(call, *call.stream(nullptr))) return error;
  if (const cudaError_t error = call.begin(InCapture::kUnsafe)) return error;
  return call.finish(wait_for_default_stream(call, body(call)));
}

}  // namespace
}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of cuda_runtime_api.h

cudaError_t cudaMemcpy(void* to, const void* from, size_t num_bytes, cudaMemcpyKind kind) {
  return blocking_api("cudaMemcpy", [&](Call& call) -> cudaError_t {
    const Range target{to, num_bytes, num_bytes, 1}, source{from, num_bytes, num_bytes, 1};
    Side to_side = Side::kPageable, from_side = Side::kPageable;
    if (const auto text = check_copy(target, source, kind, to_side, from_side)) {
      return call.fail(cudaErrorInvalidValue, "{}", *text);
    }
    return append(call, *call.stream(nullptr), NodeKind::kCopy, "cudaMemcpy", copy_operation(target, source, kind));
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t num_bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return api("cudaMemcpyAsync", InCapture::kAllowed, [&](Call& call) {
    return copy_async(call, {to, num_bytes, num_bytes, 1}, {from, num_bytes, num_bytes, 1}, kind, stream);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return api("cudaMemcpy2DAsync", InCapture::kAllowed, [&](Call& call) {
    if (width > to_pitch || width > from_pitch) {
      return call.fail(cudaErrorInvalidPitchValue, "rows of {} bytes, pitches {} and {}", width, to_pitch, from_pitch);
    }
    return copy_async(call, {to, width, to_pitch, rows}, {from, width, from_pitch, rows}, kind, stream);
  });
}

cudaError_t cudaMemset(void* pointer, int value, size_t num_bytes) {
  return blocking_api("cudaMemset",
                      [&](Call& call) { return fill_async(call, pointer, value, num_bytes, call.stream(nullptr)); });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t num_bytes, cudaStream_t stream) {
  return api("cudaMemsetAsync", InCapture::kAllowed,
             [&](Call& call) { return fill_async(call, pointer, value, num_bytes, call.stream(stream)); });
}
