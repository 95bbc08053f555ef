#include <algorithm>
#include <chrono>

#include "kernels/emulation/runtime/scheduler.h"

namespace tokenmill::emulation {
namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

cudaError_t create_event(const char* name, cudaEvent_t* handle, unsigned flags) {
  return api(name, InCapture::kAllowed, [&](Call& call) {
    constexpr unsigned kAllowed = cudaEventBlockingSync | cudaEventDisableTiming;
    if ((flags & ~kAllowed) != 0)
      return call.fail(cudaErrorNotSupported, "flags {} are not emulated", flags & ~kAllowed);
    auto event = std::make_shared<Event>();
    event->device = current_device();
    event->timing = (flags & cudaEventDisableTiming) == 0;
    *handle = reinterpret_cast<cudaEvent_t>(event.get());
    state().events[*handle] = std::move(event);
    return cudaSuccess;
  });
}

/// Asking or awaiting an event that marks a place in a capture breaks the capture.
cudaError_t refuse_captured(Call& call, const Event& event) {
  if (!event.captured) return cudaSuccess;
  if (const auto capture = event.capture.lock()) capture->invalid = true;
  return call.fail(cudaErrorCapturedEvent, "the event was last recorded in a stream that captures");
}

/// A wait for a captured event takes the waiting stream into the capture.
cudaError_t join_capture(Call& call, Stream& stream, const Event& event) {
  const auto capture = event.capture.lock();
  if (!capture) return call.fail(cudaErrorCapturedEvent, "the event marks a place in a capture that has ended");
  if (stream.legacy) {
    capture->invalid = true;
    return call.fail(cudaErrorStreamCaptureImplicit, "the default stream cannot join a capture");
  }
  if (stream.capture && stream.capture != capture) {
    stream.capture->invalid = capture->invalid = true;
    return call.fail(cudaErrorStreamCaptureMerge, "stream and event belong to different captures");
  }
  if (capture->invalid) {
    return call.fail(cudaErrorStreamCaptureInvalidated, "an earlier error ended the capture of the event");
  }
  stream.capture = capture;
  for (const size_t node : event.capture_tail) {
    if (std::find(stream.tail.begin(), stream.tail.end(), node) == stream.tail.end()) stream.tail.push_back(node);
  }
  return cudaSuccess;
}

}  // namespace
}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of cuda_runtime_api.h

cudaError_t cudaEventCreate(cudaEvent_t* event) { return create_event("cudaEventCreate", event, cudaEventDefault); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return create_event("cudaEventCreateWithFlags", event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return api("cudaEventDestroy", InCapture::kAllowed, [&](Call& call) {
    if (!call.event(handle)) return call.error();
    state().events.erase(handle);  // queued records and waits hold the event
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  return api("cudaEventRecord", InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(stream_handle);
    const auto event = call.event(handle);
    if (stream == nullptr || !event) return call.error();
    if (event->device != stream->device) {
      return call.fail(cudaErrorInvalidResourceHandle, "the event is of device {}, the stream of device {}",
                       event->device, stream->device);
    }
    if (stream->capture) {
      if (stream->capture->invalid) {
        return call.fail(cudaErrorStreamCaptureInvalidated, "an earlier error ended the capture of this stream");
      }
      event->captured = true;
      event->capture = stream->capture;
      event->capture_tail = stream->tail;
      return cudaSuccess;
    }
    if (const cudaError_t error = refuse_implicit_capture(call, *stream)) return error;
    event->captured = false;
    event->capture.reset();
    Item item;
    item.name = "cudaEventRecord";
    item.finish = [event, version = ++event->recorded] {
      event->completed = std::max(event->completed, version);
      event->completed_s = now_s();
    };
    push(call, *stream, std::move(item));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned) {
  return api("cudaStreamWaitEvent", InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(stream_handle);
    const auto event = call.event(handle);
    if (stream == nullptr || !event) return call.error();
    if (event->captured) return join_capture(call, *stream, *event);
    if (stream->capture) {
      stream->capture->invalid = true;
      return call.fail(cudaErrorStreamCaptureIsolation, "a capturing stream cannot wait for work outside its capture");
    }
    if (const cudaError_t error = refuse_implicit_capture(call, *stream)) return error;
    if (event->recorded == 0) return cudaSuccess;
    Item item;
    item.name = "cudaStreamWaitEvent";
    item.ready = [event, version = event->recorded] { return event->completed >= version; };
    push(call, *stream, std::move(item));
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return api("cudaEventQuery", InCapture::kAllowed, [&](Call& call) {
    const auto event = call.event(handle);
    if (!event) return call.error();
    if (const cudaError_t error = refuse_captured(call, *event)) return error;
    if (const cudaError_t error = call.begin(InCapture::kUnsafe)) return error;
    if (event->completed < event->recorded) run_one(call.lock());
    return event->completed < event->recorded ? cudaErrorNotReady : cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return api("cudaEventSynchronize", InCapture::kAllowed, [&](Call& call) {
    const auto event = call.event(handle);
    if (!event) return call.error();
    if (const cudaError_t error = refuse_captured(call, *event)) return error;
    if (const cudaError_t error = call.begin(InCapture::kUnsafe)) return error;
    ++state().counters.synchronizations;
    run_until(call.lock(), [&, version = event->recorded] { return event->completed >= version; });
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start_handle, cudaEvent_t end_handle) {
  return api("cudaEventElapsedTime", InCapture::kAllowed, [&](Call& call) {
    const auto start = call.event(start_handle), end = call.event(end_handle);
    if (!start || !end) return call.error();
    if (!start->timing || !end->timing || start->recorded == 0 || end->recorded == 0) {
      return call.fail(cudaErrorInvalidResourceHandle, "an event was made without timing or never recorded");
    }
    for (const auto& event : {start, end}) {
      if (const cudaError_t error = refuse_captured(call, *event)) return error;
      if (event->completed < event->recorded) return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>((end->completed_s - start->completed_s) * 1e3);
    return cudaSuccess;
  });
}
