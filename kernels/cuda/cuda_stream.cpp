#include "kernels/cuda/cuda_stream.h"

#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "kernels/core/check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/device/cuda_check.h"

namespace tokenmill::cuda {

/// The first exception of a stream's host functions; set on the driver's thread, taken on the stream's.
class HostFailure {
 public:
  bool is_set() {
    const std::lock_guard lock(mutex_);
    return exception_ != nullptr;
  }
  void set(std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (!exception_) exception_ = std::move(exception);
  }
  void rethrow() {
    std::exception_ptr exception;
    {
      const std::lock_guard lock(mutex_);
      exception = std::exchange(exception_, nullptr);
    }
    if (exception) std::rethrow_exception(exception);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
};

struct HostCall {
  std::function<void()> function;
  std::shared_ptr<HostFailure> failure;

  void run() noexcept {
    if (failure->is_set()) return;
    try {
      function();
    } catch (...) {
      failure->set(std::current_exception());
    }
  }
  static void run_kept(void* call) { static_cast<HostCall*>(call)->run(); }
  static void run_once(void* call) { std::unique_ptr<HostCall>(static_cast<HostCall*>(call))->run(); }
};

CudaRecording::CudaRecording(cudaGraphExec_t exec, std::vector<std::unique_ptr<HostCall>> calls)
    : exec_(exec), calls_(std::move(calls)) {}

CudaRecording::~CudaRecording() { static_cast<void>(cudaGraphExecDestroy(exec_)); }

CudaStream::CudaStream(Device device) : device_(device), failure_(std::make_shared<HostFailure>()) {
  const DeviceScope scope(device);
  TM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  followed_ = take_event();
}

CudaStream::~CudaStream() {
  static_cast<void>(cudaStreamSynchronize(stream_));  // host functions may still use what is destroyed next
  for (const Mark& mark : marks_) unused_.push_back(mark.event);
  unused_.push_back(followed_);
  for (cudaEvent_t event : unused_) static_cast<void>(cudaEventDestroy(event));
  static_cast<void>(cudaStreamDestroy(stream_));
}

void CudaStream::enqueue(std::function<void()> function) {
  auto call = std::make_unique<HostCall>(HostCall{std::move(function), failure_});
  if (capturing_) {
    TM_CUDA(cudaLaunchHostFunc(stream_, HostCall::run_kept, call.get()));
    captured_calls_.push_back(std::move(call));
  } else {
    TM_CUDA(cudaLaunchHostFunc(stream_, HostCall::run_once, call.get()));
    static_cast<void>(call.release());  // run_once owns it now
  }
}

void CudaStream::copy(void* destination, const void* source, int64_t num_bytes) {
  TM_ASSERT(num_bytes >= 0, "{} bytes", num_bytes);
  if (num_bytes == 0) return;
  TM_CUDA(cudaMemcpyAsync(destination, source, static_cast<size_t>(num_bytes), cudaMemcpyDefault, stream_));
}

cudaEvent_t CudaStream::take_event() {
  if (!unused_.empty()) {
    cudaEvent_t event = unused_.back();
    unused_.pop_back();
    return event;
  }
  const DeviceScope scope(device_);
  cudaEvent_t event = nullptr;
  TM_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

Stream::Event CudaStream::record() {
  TM_ASSERT(!capturing_, "an event recorded while the stream captures cannot be waited for");
  cudaEvent_t event = take_event();
  marks_.push_back({++last_, event});
  TM_CUDA(cudaEventRecord(event, stream_));
  return last_;
}

void CudaStream::retire(Event number) {
  while (!marks_.empty() && marks_.front().number <= number) {
    unused_.push_back(marks_.front().event);
    marks_.pop_front();
  }
}

void CudaStream::await(const std::function<cudaError_t()>& state) const {
  // A device that works steps in milliseconds is asked all the time; a late one is worth a look at why.
  constexpr std::chrono::milliseconds kBusy(2), kBetweenChecks(10);
  constexpr std::chrono::microseconds kPause(50);
  const auto begin = std::chrono::steady_clock::now();
  for (auto checked = begin;;) {
    const cudaError_t now_state = state();
    if (now_state != cudaErrorNotReady) {
      TM_CUDA(now_state);
      return;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - begin < kBusy) {
      std::this_thread::yield();
      continue;
    }
    if (now - checked >= kBetweenChecks) {
      checked = now;
      run_checks();
    }
    std::this_thread::sleep_for(kPause);
  }
}

void CudaStream::wait(Event event) {
  TM_ASSERT(event <= last_, "event {} was not recorded, the last one is {}", event, last_);
  for (const Mark& mark : marks_) {
    if (mark.number != event) continue;
    await([&mark] { return cudaEventQuery(mark.event); });
    break;
  }
  retire(event);
  failure_->rethrow();
  run_checks();
}

bool CudaStream::done(Event event) {
  TM_ASSERT(event <= last_, "event {} was not recorded, the last one is {}", event, last_);
  for (const Mark& mark : marks_) {
    if (mark.number != event) continue;
    const cudaError_t state = cudaEventQuery(mark.event);
    if (state == cudaErrorNotReady) return false;
    TM_CUDA(state);
    break;
  }
  retire(event);
  return true;
}

void CudaStream::synchronize() {
  await([this] { return cudaStreamQuery(stream_); });
  retire(last_);
  failure_->rethrow();
  run_checks();
}

void CudaStream::begin_capture() {
  TM_ASSERT(!capturing_, "a capture is on");
  // Other threads may allocate meanwhile.
  TM_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  capturing_ = true;
}

std::unique_ptr<Recording> CudaStream::end_capture() {
  TM_ASSERT(capturing_, "no capture is on");
  capturing_ = false;
  auto calls = std::exchange(captured_calls_, {});
  cudaGraph_t graph = nullptr;
  TM_CUDA(cudaStreamEndCapture(stream_, &graph));
  cudaGraphExec_t exec = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
  TM_CUDA(cudaGraphDestroy(graph));
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    size_t free_bytes = 0, total_bytes = 0;
    TM_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    throw Error(ErrorKind::kDevice,
                "{}: no memory for a CUDA graph, {} of {} bytes are free; lower --gpu-memory-utilization or "
                "--max-cudagraph-capture-size, or give --enforce-eager",
                to_string(device_), free_bytes, total_bytes);
  }
  TM_CUDA(error);
  return std::make_unique<CudaRecording>(exec, std::move(calls));
}

void CudaStream::replay(Recording& recording) {
  TM_ASSERT(!capturing_, "a recording cannot be part of another");
  auto* cuda_recording = dynamic_cast<CudaRecording*>(&recording);
  TM_ASSERT(cuda_recording != nullptr, "the recording is of another device");
  TM_CUDA(cudaGraphLaunch(cuda_recording->exec(), stream_));
}

void CudaStream::follow(CudaStream& other) {
  TM_ASSERT(!capturing_ && !other.capturing_, "a capture would take the other stream in");
  TM_CUDA(cudaEventRecord(other.followed_, other.stream_));
  TM_CUDA(cudaStreamWaitEvent(stream_, other.followed_, 0));
}

}  // namespace tokenmill::cuda
