#include <algorithm>

#include "kernels/emulation/runtime/scheduler.h"

namespace tokenmill::emulation {
namespace {

/// Every captured node must come before the origin's last work: else a forked stream was not joined again.
bool joined(const Capture& capture) {
  std::vector<bool> reached(capture.graph.nodes.size(), false);
  std::vector<size_t> open = capture.origin->tail;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    const auto& dependencies = capture.graph.nodes[node].dependencies;
    open.insert(open.end(), dependencies.begin(), dependencies.end());
  }
  return std::all_of(reached.begin(), reached.end(), [](bool node) { return node; });
}

void leave_capture(const std::shared_ptr<Capture>& capture) {
  for (const auto& [id, stream] : state().streams) {
    if (stream->capture != capture) continue;
    stream->capture.reset();
    stream->tail.clear();
  }
  std::erase(state().captures, capture);
}

cudaStreamCaptureStatus status_of(const Stream& stream) {
  if (!stream.capture) return cudaStreamCaptureStatusNone;
  return stream.capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

}  // namespace
}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of cuda_runtime_api.h

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return api("cudaStreamBeginCapture", InCapture::kAllowed, [&](Call& call) {
    Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (stream->legacy) return call.fail(cudaErrorStreamCaptureUnsupported, "the default stream cannot capture");
    if (stream->capture) return call.fail(cudaErrorIllegalState, "the stream captures already");
    auto capture = std::make_shared<Capture>();
    capture->id = ++state().num_captures;
    capture->origin = stream;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    stream->capture = capture;
    state().captures.push_back(std::move(capture));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return api("cudaStreamEndCapture", InCapture::kAllowed, [&](Call& call) {
    *graph = nullptr;
    Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return call.fail(cudaErrorIllegalState, "the stream does not capture");
    if (capture->origin != stream) {
      capture->invalid = true;
      return call.fail(cudaErrorStreamCaptureUnmatched, "the capture did not begin on this stream");
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
      return call.fail(cudaErrorStreamCaptureWrongThread, "another thread began the capture");
    }
    const bool complete = joined(*capture);
    leave_capture(capture);
    if (capture->invalid) return call.fail(cudaErrorStreamCaptureInvalidated, "an earlier error ended the capture");
    if (!complete)
      return call.fail(cudaErrorStreamCaptureUnjoined, "a forked stream was not joined to the origin again");
    auto* result = new Graph(std::move(capture->graph));
    state().graphs.insert(result);
    *graph = reinterpret_cast<cudaGraph_t>(result);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return api("cudaStreamIsCapturing", InCapture::kAllowed, [&](Call& call) {
    const Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (const cudaError_t error = refuse_implicit_capture(call, *stream)) return error;
    *status = status_of(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* num_dependencies) {
  return api("cudaStreamGetCaptureInfo", InCapture::kAllowed, [&](Call& call) {
    const Stream* stream = call.stream(handle);
    if (stream == nullptr) return call.error();
    if (graph != nullptr || dependencies != nullptr || edges != nullptr) {
      return call.fail(cudaErrorNotSupported, "only status, id and the number of dependencies are emulated");
    }
    *status = status_of(*stream);
    if (id != nullptr && stream->capture) *id = stream->capture->id;
    if (num_dependencies != nullptr) *num_dependencies = stream->tail.size();
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return api("cudaThreadExchangeStreamCaptureMode", InCapture::kAllowed, [&](Call&) {
    *mode = exchange_thread_capture_mode(*mode);
    return cudaSuccess;
  });
}
