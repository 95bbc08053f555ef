#pragma once
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/clock.h"
#include "kernels/device/stream.h"
#include "kernels/op_times.h"

namespace tokenmill::cpu {

/// What work is timed as.
enum class OpKind : uint8_t { kGemm, kAttention, kOther, kHost };

class CpuRecording : public Recording {
 public:
  struct Work {
    std::function<void()> function;
    OpKind kind;
  };
  std::vector<Work> work;
};

/// Work runs at once on the calling thread (and the backend's team), so every event is done when it is recorded. After
/// work has thrown, what follows is skipped until synchronize() or wait() has rethrown the exception.
class CpuStream : public Stream {
 public:
  /// As enqueue, for any callable: no allocation unless a capture is on.
  template <typename Function>
  void submit(Function&& function, OpKind kind = OpKind::kOther) {
    if (recording_) {
      recording_->work.push_back({std::forward<Function>(function), kind});
    } else {
      run(function, kind);
    }
  }
  /// Of all work run so far.
  const OpTimes& op_times() const { return op_times_; }
  bool capturing() const { return recording_ != nullptr; }
  void enqueue(std::function<void()> function) override { submit(std::move(function), OpKind::kHost); }
  void copy(void* destination, const void* source, int64_t num_bytes) override;
  Event record() override { return ++last_event_; }
  void wait(Event event) override;
  bool done(Event event) override;
  void synchronize() override;
  void begin_capture() override;
  std::unique_ptr<Recording> end_capture() override;
  void replay(Recording& recording) override;

 private:
  template <typename Function>
  void run(Function&& function, OpKind kind) {
    if (error_) return;
    const double start_s = clock_.now_s();
    try {
      function();
    } catch (...) {
      error_ = std::current_exception();
    }
    double& total_s = kind == OpKind::kGemm        ? op_times_.gemm_s
                      : kind == OpKind::kAttention ? op_times_.attention_s
                       : kind == OpKind::kHost      ? op_times_.host_s
                                                   : op_times_.other_s;
    total_s += clock_.now_s() - start_s;
  }
  SteadyClock clock_;
  OpTimes op_times_;
  Event last_event_ = 0;
  std::exception_ptr error_;
  std::unique_ptr<CpuRecording> recording_;
};

}  // namespace tokenmill::cpu
