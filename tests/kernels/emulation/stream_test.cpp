// Streams, events and host functions of the emulated runtime: what is in order, what is not, and when work runs.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "tests/support/emulated_device.h"

using namespace tokenmill;
using test::DeviceArray;
using test::DeviceEvent;
using test::DeviceStream;
using test::EmulatedDevice;

namespace {

constexpr int kTries = 32;

void append(std::string* text, char letter) { text->push_back(letter); }

/// A host function that appends one letter to a text.
struct Letter {
  std::string* text;
  char letter;
  static void run(void* self) { append(static_cast<Letter*>(self)->text, static_cast<Letter*>(self)->letter); }
};

/// One stream fills, another copies the value out; how often the copy came too early, over seeds.
int early_copies(emulation::Mode mode, bool with_wait) {
  int early = 0;
  for (uint64_t seed = 0; seed < kTries; ++seed) {
    const EmulatedDevice device({.mode = mode, .seed = seed});
    const DeviceStream writer, reader;
    const DeviceEvent written;
    const DeviceArray<int> source(1), target(1);
    cudaMemsetAsync(source.data(), 0, sizeof(int), writer);
    cudaEventRecord(written, writer);
    if (with_wait) cudaStreamWaitEvent(reader, written, 0);
    cudaMemcpyAsync(target.data(), source.data(), sizeof(int), cudaMemcpyDeviceToDevice, reader);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    early += target.read()[0] != 0;
  }
  return early;
}

}  // namespace

TEST_CASE("a missing event wait shows under some seeds, and never with the wait") {
  const int early = early_copies(emulation::Mode::kLazy, false);
  CHECK(early > 0);
  CHECK(early < kTries);
  CHECK(early_copies(emulation::Mode::kLazy, true) == 0);
  CHECK(early_copies(emulation::Mode::kEager, true) == 0);
}

TEST_CASE("a wait is for the record of its moment, not for a later one") {
  for (uint64_t seed = 0; seed < kTries; ++seed) {
    const EmulatedDevice device({.seed = seed});
    std::string text;
    Letter a{&text, 'a'}, b{&text, 'b'}, c{&text, 'c'};
    const DeviceStream first, second;
    const DeviceEvent event;
    cudaStreamWaitEvent(second, event, 0);  // never recorded: no wait
    cudaLaunchHostFunc(first, Letter::run, &a);
    cudaEventRecord(event, first);
    cudaStreamWaitEvent(second, event, 0);
    cudaLaunchHostFunc(second, Letter::run, &b);
    cudaLaunchHostFunc(first, Letter::run, &c);
    cudaEventRecord(event, first);
    REQUIRE(cudaStreamSynchronize(second) == cudaSuccess);
    CHECK((text == "ab" || text == "acb" || text == "abc"));
    REQUIRE(cudaEventSynchronize(event) == cudaSuccess);
    CHECK(text.size() == 3);
  }
}

TEST_CASE("work runs in order when the host waits, one step for each query before that") {
  const EmulatedDevice device;
  std::string text;
  Letter a{&text, 'a'}, b{&text, 'b'};
  const DeviceStream stream;
  const DeviceEvent event;
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  cudaLaunchHostFunc(stream, Letter::run, &a);
  cudaLaunchHostFunc(stream, Letter::run, &b);
  cudaEventRecord(event, stream);
  CHECK(text.empty());
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(text == "a");
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(text == "ab");
  CHECK(cudaGetLastError() == cudaSuccess);  // "not ready" is no error
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
}

TEST_CASE("eager work has run when its call returns") {
  const EmulatedDevice device({.mode = emulation::Mode::kEager});
  std::string text;
  Letter a{&text, 'a'};
  const DeviceStream stream;
  cudaLaunchHostFunc(stream, Letter::run, &a);
  CHECK(text == "a");
  CHECK(emulation::counters().synchronizations == 0);
}

TEST_CASE("the default stream is ordered with blocking streams and not with others") {
  bool swapped = false;
  for (uint64_t seed = 0; seed < kTries; ++seed) {
    const EmulatedDevice device({.seed = seed});
    std::string ordered, loose;
    Letter a{&ordered, 'a'}, b{&ordered, 'b'}, c{&ordered, 'c'}, x{&loose, 'x'}, y{&loose, 'y'};
    cudaStream_t blocking;
    REQUIRE(cudaStreamCreate(&blocking) == cudaSuccess);
    const DeviceStream free_running;
    cudaLaunchHostFunc(blocking, Letter::run, &a);
    cudaLaunchHostFunc(free_running, Letter::run, &x);
    cudaLaunchHostFunc(nullptr, Letter::run, &b);
    cudaLaunchHostFunc(nullptr, Letter::run, &y);
    cudaLaunchHostFunc(blocking, Letter::run, &c);
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(ordered == "abc");
    swapped = swapped || loose == "yx";
    cudaStreamDestroy(blocking);
  }
  CHECK(swapped);
}

TEST_CASE("a host function may not call the runtime") {
  const EmulatedDevice device;
  const DeviceStream stream;
  cudaError_t inside = cudaSuccess;
  cudaLaunchHostFunc(
      stream,
      [](void* error) {
        void* memory = nullptr;
        *static_cast<cudaError_t*>(error) = cudaMalloc(&memory, 16);
      },
      &inside);
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(inside == cudaErrorNotPermitted);
}

TEST_CASE("a destroyed stream finishes its work; a destroyed handle is refused") {
  const EmulatedDevice device;
  std::string text;
  Letter a{&text, 'a'};
  cudaStream_t stream;
  cudaEvent_t event;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreate(&event) == cudaSuccess);
  cudaLaunchHostFunc(stream, Letter::run, &a);
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  REQUIRE(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(event, nullptr) == cudaErrorInvalidResourceHandle);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(text == "a");
}

TEST_CASE("elapsed time needs two finished records with timing") {
  const EmulatedDevice device;
  const DeviceStream stream;
  cudaEvent_t start, end;
  cudaEventCreate(&start);
  cudaEventCreate(&end);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);
  cudaEventRecord(start, stream);
  cudaEventRecord(end, stream);
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorNotReady);
  cudaStreamSynchronize(stream);
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
  CHECK(milliseconds >= 0);
  const DeviceEvent untimed;
  cudaEventRecord(untimed, stream);
  cudaStreamSynchronize(stream);
  CHECK(cudaEventElapsedTime(&milliseconds, start, untimed) == cudaErrorInvalidResourceHandle);
  cudaEventDestroy(start);
  cudaEventDestroy(end);
}

TEST_CASE("work of two threads' streams can wait for each other") {
  const EmulatedDevice device;
  std::atomic<int> arrived{0};
  const auto meet = [](void* counter) {
    auto& number = *static_cast<std::atomic<int>*>(counter);
    ++number;
    while (number < 2) std::this_thread::yield();
  };
  const auto rank = [&] {
    const DeviceStream stream;
    cudaLaunchHostFunc(stream, meet, &arrived);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  };
  std::thread other(rank);
  rank();
  other.join();
  CHECK(arrived == 2);
}
