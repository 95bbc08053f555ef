// Capture and graphs of the emulated runtime: what a capture allows, what ends it, and how graphs replay.
#include <doctest/doctest.h>

#include <set>
#include <thread>

#include "tests/support/emulated_device.h"

using namespace tokenmill;
using test::DeviceArray;
using test::DeviceEvent;
using test::DeviceStream;
using test::EmulatedDevice;

namespace {

struct Letter {
  std::string* text;
  char letter;
  static void run(void* self) { static_cast<Letter*>(self)->text->push_back(static_cast<Letter*>(self)->letter); }
};

cudaError_t begin(cudaStream_t stream) { return cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal); }

/// Ends the capture and destroys its graph; the code of EndCapture.
cudaError_t end(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);
  return error;
}

cudaGraphExec_t end_and_instantiate(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  return exec;
}

cudaStreamCaptureStatus status(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  return status;
}

/// The code that call gives inside a capture. The capture must be lost exactly if the call fails.
template <typename Function>
cudaError_t in_capture(cudaStream_t stream, Function&& call) {
  REQUIRE(begin(stream) == cudaSuccess);
  const cudaError_t error = call();
  CHECK(status(stream) == (error ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive));
  CHECK(end(stream) == (error ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
  CHECK(status(stream) == cudaStreamCaptureStatusNone);
  return error;
}

}  // namespace

TEST_CASE("captured work runs at every launch of the graph and not before") {
  const EmulatedDevice device;
  std::string text;
  Letter a{&text, 'a'}, b{&text, 'b'};
  const DeviceStream stream;
  REQUIRE(begin(stream) == cudaSuccess);
  CHECK(status(stream) == cudaStreamCaptureStatusActive);
  CHECK(cudaLaunchHostFunc(stream, Letter::run, &a) == cudaSuccess);
  CHECK(cudaLaunchHostFunc(stream, Letter::run, &b) == cudaSuccess);
  cudaGraphExec_t exec = end_and_instantiate(stream);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(text.empty());
  CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
  CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
  REQUIRE(cudaGraphExecDestroy(exec) == cudaSuccess);  // launches that wait keep what they need
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(text == "abab");
  CHECK(emulation::counters().graph_launches == 2);
}

TEST_CASE("branches of a graph run in any order, after what they depend on") {
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    const EmulatedDevice device({.seed = seed});
    std::string text;
    Letter a{&text, 'a'}, b{&text, 'b'}, c{&text, 'c'}, d{&text, 'd'};
    const DeviceStream origin, branch;
    const DeviceEvent fork, join;
    REQUIRE(begin(origin) == cudaSuccess);
    cudaLaunchHostFunc(origin, Letter::run, &a);
    cudaEventRecord(fork, origin);
    CHECK(cudaStreamWaitEvent(branch, fork, 0) == cudaSuccess);
    CHECK(status(branch) == cudaStreamCaptureStatusActive);
    cudaLaunchHostFunc(branch, Letter::run, &b);
    cudaLaunchHostFunc(origin, Letter::run, &c);
    cudaEventRecord(join, branch);
    cudaStreamWaitEvent(origin, join, 0);
    cudaLaunchHostFunc(origin, Letter::run, &d);
    cudaGraphExec_t exec = end_and_instantiate(origin);
    CHECK(status(branch) == cudaStreamCaptureStatusNone);
    cudaGraphLaunch(exec, origin);
    cudaStreamSynchronize(origin);
    cudaGraphExecDestroy(exec);
    orders.insert(text);
  }
  CHECK(orders == std::set<std::string>{"abcd", "acbd"});
}

TEST_CASE("a fork that is not joined fails the capture") {
  const EmulatedDevice device;
  std::string text;
  Letter a{&text, 'a'};
  const DeviceStream origin, branch;
  const DeviceEvent fork;
  REQUIRE(begin(origin) == cudaSuccess);
  cudaEventRecord(fork, origin);
  cudaStreamWaitEvent(branch, fork, 0);
  cudaLaunchHostFunc(branch, Letter::run, &a);
  CHECK(end(origin) == cudaErrorStreamCaptureUnjoined);
  CHECK(status(branch) == cudaStreamCaptureStatusNone);
}

TEST_CASE("calls that a capture forbids fail and end it") {
  const EmulatedDevice device;
  const DeviceStream stream, other;
  const DeviceEvent event, captured;
  const DeviceArray<int> array(4);
  int host = 0;
  void* memory = nullptr;
  const auto unsupported = cudaErrorStreamCaptureUnsupported;
  CHECK(in_capture(stream, [&] { return cudaMalloc(&memory, 16); }) == unsupported);
  CHECK(in_capture(stream, [&] { return cudaFree(array.data()); }) == unsupported);
  CHECK(in_capture(stream, [&] { return cudaMallocHost(&memory, 16); }) == unsupported);
  CHECK(in_capture(stream, [&] { return cudaMemcpy(&host, array.data(), 4, cudaMemcpyDeviceToHost); }) == unsupported);
  CHECK(in_capture(stream, [&] { return cudaMemset(array.data(), 0, 4); }) == unsupported);
  CHECK(in_capture(stream, [&] { return cudaDeviceSynchronize(); }) == unsupported);
  CHECK(in_capture(stream, [&] { return cudaStreamSynchronize(stream); }) == unsupported);
  CHECK(in_capture(stream, [&] { return cudaStreamQuery(stream); }) == unsupported);
  CHECK(in_capture(stream, [&] { return cudaStreamSynchronize(other); }) == unsupported);
  CHECK(in_capture(stream, [&] { return cudaEventQuery(event); }) == unsupported);
  CHECK(in_capture(stream, [&] {
          return cudaMemcpyAsync(&host, array.data(), 4, cudaMemcpyDeviceToHost, stream);  // pageable
        }) == unsupported);
  CHECK(in_capture(stream, [&] {
          cudaEventRecord(captured, stream);
          return cudaEventQuery(captured);
        }) == cudaErrorCapturedEvent);
  CHECK(in_capture(stream, [&] { return cudaMemsetAsync(array.data(), 0, 4, other); }) == cudaSuccess);
  CHECK(in_capture(stream, [&] { return cudaMemsetAsync(array.data(), 0, 4, stream); }) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("a capturing stream can wait for nothing outside its capture") {
  const EmulatedDevice device;
  const DeviceStream stream, other;
  const DeviceEvent event;
  cudaEventRecord(event, other);
  CHECK(in_capture(stream, [&] { return cudaStreamWaitEvent(stream, event, 0); }) == cudaErrorStreamCaptureIsolation);
  const DeviceEvent inside;
  REQUIRE(begin(stream) == cudaSuccess);
  REQUIRE(begin(other) == cudaSuccess);
  cudaEventRecord(inside, stream);
  CHECK(cudaStreamWaitEvent(other, inside, 0) == cudaErrorStreamCaptureMerge);
  CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
  CHECK(end(other) == cudaErrorStreamCaptureInvalidated);
  CHECK(cudaStreamWaitEvent(stream, inside, 0) == cudaErrorCapturedEvent);
}

TEST_CASE("the default stream cannot capture, nor work beside the capture of a blocking stream") {
  const EmulatedDevice device;
  const DeviceArray<int> array(1);
  CHECK(begin(nullptr) == cudaErrorStreamCaptureUnsupported);
  cudaStream_t blocking;
  REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
  CHECK(in_capture(blocking, [&] { return cudaMemsetAsync(array.data(), 0, 4, nullptr); }) ==
        cudaErrorStreamCaptureImplicit);
  CHECK(in_capture(blocking, [&] { return cudaMemset(array.data(), 0, 4); }) == cudaErrorStreamCaptureImplicit);
  cudaStreamDestroy(blocking);
  const DeviceStream free_running;
  CHECK(in_capture(free_running, [&] { return cudaMemsetAsync(array.data(), 0, 4, nullptr); }) == cudaSuccess);
}

TEST_CASE("a capture ends on the stream and thread where it began") {
  const EmulatedDevice device;
  const DeviceStream origin, branch;
  const DeviceEvent fork;
  CHECK(end(origin) == cudaErrorIllegalState);
  REQUIRE(begin(origin) == cudaSuccess);
  CHECK(begin(origin) == cudaErrorIllegalState);
  cudaError_t elsewhere = cudaSuccess;
  std::thread([&] { elsewhere = end(origin); }).join();
  CHECK(elsewhere == cudaErrorStreamCaptureWrongThread);
  cudaEventRecord(fork, origin);
  cudaStreamWaitEvent(branch, fork, 0);
  CHECK(end(branch) == cudaErrorStreamCaptureUnmatched);
  CHECK(end(origin) == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("a thread-local capture leaves other threads alone, a global one does not, a relaxed one forbids nothing") {
  const EmulatedDevice device;
  const DeviceStream stream;
  void* memory = nullptr;
  const auto allocate_elsewhere = [&] {
    cudaError_t error = cudaSuccess;
    std::thread([&] { error = cudaMalloc(&memory, 16); }).join();
    return error;
  };
  REQUIRE(begin(stream) == cudaSuccess);
  CHECK(allocate_elsewhere() == cudaSuccess);
  CHECK(end(stream) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  CHECK(allocate_elsewhere() == cudaErrorStreamCaptureUnsupported);
  CHECK(end(stream) == cudaErrorStreamCaptureInvalidated);
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 16) == cudaSuccess);
  CHECK(end(stream) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("an executable graph takes over a graph of the same shape only") {
  const EmulatedDevice device;
  const DeviceStream stream;
  std::string text;
  Letter a{&text, 'a'}, b{&text, 'b'};
  const auto capture = [&](std::initializer_list<Letter*> letters) {
    cudaGraph_t graph = nullptr;
    REQUIRE(begin(stream) == cudaSuccess);
    for (Letter* letter : letters) cudaLaunchHostFunc(stream, Letter::run, letter);
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    return graph;
  };
  cudaGraph_t one = capture({&a}), other = capture({&b}), longer = capture({&a, &b});
  size_t num_nodes = 0;
  REQUIRE(cudaGraphGetNodes(longer, nullptr, &num_nodes) == cudaSuccess);
  CHECK(num_nodes == 2);
  cudaGraphExec_t exec = nullptr;
  REQUIRE(cudaGraphInstantiate(&exec, one, 0) == cudaSuccess);
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(exec, longer, &info) == cudaErrorGraphExecUpdateFailure);
  CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
  CHECK(cudaGraphExecUpdate(exec, other, &info) == cudaSuccess);
  cudaGraphLaunch(exec, stream);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(text == "b");
  for (cudaGraph_t graph : {one, other, longer}) cudaGraphDestroy(graph);
  cudaGraphExecDestroy(exec);
  CHECK(cudaGraphLaunch(exec, stream) == cudaErrorInvalidValue);
}

TEST_CASE("a graph that copies freed memory fails when it runs") {
  const EmulatedDevice device;
  const DeviceStream stream;
  int *source = nullptr, *target = nullptr;
  REQUIRE(cudaMalloc(&source, 4) == cudaSuccess);
  REQUIRE(cudaMalloc(&target, 4) == cudaSuccess);
  REQUIRE(begin(stream) == cudaSuccess);
  cudaMemcpyAsync(target, source, 4, cudaMemcpyDeviceToDevice, stream);
  cudaGraphExec_t exec = end_and_instantiate(stream);
  REQUIRE(cudaFree(source) == cudaSuccess);
  CHECK(cudaGraphLaunch(exec, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
  emulation::reset();
  cudaGraphExecDestroy(exec);
  CHECK(cudaFree(target) == cudaSuccess);
}

TEST_CASE("an executable graph takes device memory for each of its nodes until it is destroyed") {
  emulation::Settings settings = emulation::settings();
  settings.memory_bytes = 64 << 10;
  settings.context_bytes = 8 << 10;
  settings.graph_node_bytes = 24 << 10;
  const EmulatedDevice device(settings);
  const DeviceStream stream;
  const auto free_bytes = [] {
    size_t free = 0, total = 0;
    REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
    return free;
  };
  CHECK(free_bytes() == 56 << 10);
  int* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 4) == cudaSuccess);
  const auto record = [&](int num_nodes) {
    REQUIRE(begin(stream) == cudaSuccess);
    for (int i = 0; i < num_nodes; ++i) cudaMemsetAsync(memory, 0, 4, stream);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    return graph;
  };
  const size_t before = free_bytes();
  cudaGraphExec_t exec = nullptr;
  cudaGraph_t two = record(2), three = record(3);
  REQUIRE(cudaGraphInstantiate(&exec, two, 0) == cudaSuccess);
  CHECK(free_bytes() == before - (48 << 10));
  cudaGraphExecDestroy(exec);
  CHECK(free_bytes() == before);
  CHECK(cudaGraphInstantiate(&exec, three, 0) == cudaErrorMemoryAllocation);
  emulation::reset();
  for (cudaGraph_t graph : {two, three}) cudaGraphDestroy(graph);
  CHECK(cudaFree(memory) == cudaSuccess);
}
