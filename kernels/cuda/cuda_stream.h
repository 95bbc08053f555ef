#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/device/cuda.h"
#include "kernels/device/device.h"
#include "kernels/device/stream.h"

namespace tokenmill::cuda {

struct HostCall;
class HostFailure;

/// An executable graph and the host functions it calls. Outlives its replays.
class CudaRecording : public Recording {
 public:
  CudaRecording(cudaGraphExec_t exec, std::vector<std::unique_ptr<HostCall>> calls);
  ~CudaRecording() override;
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraphExec_t exec_;
  std::vector<std::unique_ptr<HostCall>> calls_;
};

/// A CUDA stream that the default stream does not wait for. Host functions run on a thread of the driver and must not
/// call CUDA. After one has thrown, later ones are skipped until wait() or synchronize() has rethrown; device work goes
/// on, its results mean nothing. Copies from and to pageable memory make the host wait and cannot be captured.
class CudaStream : public Stream {
 public:
  explicit CudaStream(Device device);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void enqueue(std::function<void()> function) override;
  void copy(void* destination, const void* source, int64_t num_bytes) override;
  /// Not while capturing.
  Event record() override;
  void wait(Event event) override;
  bool done(Event event) override;
  void synchronize() override;
  void begin_capture() override;
  std::unique_ptr<Recording> end_capture() override;
  void replay(Recording& recording) override;
  void* native_handle() const override { return stream_; }

  /// For launches; work enqueued through it keeps its place among the calls above.
  cudaStream_t handle() const { return stream_; }
  bool capturing() const { return capturing_; }
  /// Work enqueued here from now on waits on the device for what other holds now. Neither may capture.
  void follow(CudaStream& other);

 private:
  struct Mark {
    Event number;
    cudaEvent_t event;
  };
  cudaEvent_t take_event();
  /// Returns when the work that state() asks for is done; runs the checks meanwhile.
  void await(const std::function<cudaError_t()>& state) const;
  /// Gives back the events of all marks up to number, which have passed.
  void retire(Event number);
  const Device device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t followed_ = nullptr;
  bool capturing_ = false;
  Event last_ = 0;
  std::deque<Mark> marks_;           // recorded and not known to have passed, ascending
  std::vector<cudaEvent_t> unused_;  // so that a step creates none
  std::shared_ptr<HostFailure> failure_;
  std::vector<std::unique_ptr<HostCall>> captured_calls_;
};

}  // namespace tokenmill::cuda
