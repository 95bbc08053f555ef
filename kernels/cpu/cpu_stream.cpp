#include "kernels/cpu/cpu_stream.h"

#include "kernels/core/check.h"

namespace tokenmill::cpu {

void CpuStream::copy(void* destination, const void* source, int64_t num_bytes) {
  submit([=] {
    if (num_bytes > 0) std::memcpy(destination, source, static_cast<size_t>(num_bytes));
  });
}

void CpuStream::wait(Event event) {
  TM_ASSERT(event <= last_event_, "event {} was never recorded; the last one is {}", event, last_event_);
  synchronize();
}

bool CpuStream::done(Event event) {
  TM_ASSERT(event <= last_event_, "event {} was never recorded; the last one is {}", event, last_event_);
  return true;
}

void CpuStream::synchronize() {
  TM_ASSERT(!recording_, "synchronize() while work is being recorded");
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void CpuStream::begin_capture() {
  TM_ASSERT(!recording_, "begin_capture() inside a capture");
  recording_ = std::make_unique<CpuRecording>();
}

std::unique_ptr<Recording> CpuStream::end_capture() {
  TM_ASSERT(recording_, "end_capture() without begin_capture()");
  return std::move(recording_);
}

void CpuStream::replay(Recording& recording) {
  TM_ASSERT(!recording_, "replay() inside a capture");
  auto* recorded = dynamic_cast<CpuRecording*>(&recording);
  TM_ASSERT(recorded != nullptr, "a recording of another device");
  for (const auto& work : recorded->work) run(work.function, work.kind);
}

}  // namespace tokenmill::cpu
