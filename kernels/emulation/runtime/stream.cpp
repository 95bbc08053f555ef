#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/emulation/runtime/scheduler.h"

namespace tokenmill::emulation {
namespace {

constexpr int kLeastPriority = 0, kGreatestPriority = -5;

cudaError_t create_stream(const char* name, cudaStream_t* handle, unsigned flags, int priority) {
  return api(name, InCapture::kAllowed, [&](Call& call) {
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) {
      return call.fail(cudaErrorInvalidValue, "flags {} are neither cudaStreamDefault nor cudaStreamNonBlocking",
                       flags);
    }
    auto stream = std::make_unique<Stream>();
    stream->id = state().num_streams++;
    stream->device = current_device();
    stream->blocking = flags == cudaStreamDefault;
    stream->flags = flags;
    stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
    *handle = reinterpret_cast<cudaStream_t>(stream.get());
    state().stream_handles.insert(stream.get());
    state().streams[stream->id] = std::move(stream);
    return cudaSuccess;
  });
}

/// Waiting for a stream that captures, or asking it, breaks the capture.
cudaError_t refuse_capturing(Call& call, const Stream& stream) {
  if (!stream.capture) return cudaSuccess;
  stream.capture->invalid = true;
  return call.fail(cudaErrorStreamCaptureUnsupported, "the stream captures");
}

}  // namespace
}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of cuda_runtime_api.h

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return create_stream("cudaStreamCreate", stream, cudaStreamDefault, kLeastPriority);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return create_stream("cudaStreamCreateWithFlags", stream, flags, kLeastPriority);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return create_stream("cudaStreamCreateWithPriority", stream, flags, priority);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = kLeastPriority;
  *greatest = kGreatestPriority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return api("cudaStreamGetFlags", InCapture::kAllowed, [&](Call& call) {
    const Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    *flags = stream->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return api("cudaStreamDestroy", InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (stream->legacy) return call.fail(cudaErrorInvalidResourceHandle, "the default stream cannot be destroyed");
    if (stream->capture) stream->capture->invalid = true;
    state().stream_handles.erase(stream);
    stream->destroyed = true;  // work that it still holds runs later
    if (stream->queue.empty()) state().streams.erase(stream->id);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return api("cudaStreamSynchronize", InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (const cudaError_t error = refuse_capturing(call, *stream)) return error;
    if (const cudaError_t error = refuse_implicit_capture(call, *stream)) return error;
    if (const cudaError_t error = call.begin(InCapture::kUnsafe)) return error;
    ++state().counters.synchronizations;
    drain_stream(call.lock(), *stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return api("cudaStreamQuery", InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (const cudaError_t error = refuse_capturing(call, *stream)) return error;
    if (const cudaError_t error = refuse_implicit_capture(call, *stream)) return error;
    if (const cudaError_t error = call.begin(InCapture::kUnsafe)) return error;
    if (!stream->queue.empty()) run_one(call.lock());
    return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", InCapture::kAllowed, [&](Call& call) {
    for (const auto& [id, stream] : state().streams) {  // whatever the capture's mode
      if (stream->device != current_device()) continue;
      if (const cudaError_t error = refuse_capturing(call, *stream)) return error;
    }
    ++state().counters.synchronizations;
    drain_device(call.lock(), current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return api("cudaLaunchHostFunc", InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (function == nullptr) return call.fail(cudaErrorInvalidValue, "the function is null");
    return append(call, *stream, NodeKind::kHost, "host function", [=]() -> Status {
      const HostFunctionScope scope;
      function(data);
      return {};
    });
  });
}
