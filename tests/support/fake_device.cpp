#include <cstdlib>
#include <cstring>

#include "kernels/core/check.h"
#include "tests/support/fake_ops.h"

namespace tokenmill::test {
namespace {

struct FakeRecording : Recording {
  std::vector<std::function<void()>> work;
};

}  // namespace

void FakeStream::enqueue(std::function<void()> function) {
  if (capturing_) {
    captured_.push_back(std::move(function));
    return;
  }
  queue_.push_back(std::move(function));
  ++enqueued_;
}

void FakeStream::copy(void* destination, const void* source, int64_t num_bytes) {
  enqueue([=] { std::memcpy(destination, source, static_cast<size_t>(num_bytes)); });
}

void FakeStream::wait(Event event) {
  TM_ASSERT(!capturing_ && event <= enqueued_, "event {} of {}", event, enqueued_);
  while (finished_ < event) {
    const auto work = std::move(queue_.front());
    queue_.pop_front();
    ++finished_;
    work();  // an exception leaves the rest queued, as the next wait() will find
  }
}

void FakeStream::begin_capture() {
  TM_ASSERT(!capturing_);
  capturing_ = true;
}

std::unique_ptr<Recording> FakeStream::end_capture() {
  TM_ASSERT(capturing_);
  capturing_ = false;
  auto recording = std::make_unique<FakeRecording>();
  recording->work = std::exchange(captured_, {});
  return recording;
}

void FakeStream::replay(Recording& recording) {
  for (const auto& work : dynamic_cast<FakeRecording&>(recording).work) enqueue(work);
}

Buffer FakeMemory::allocate(int64_t num_bytes) {
  if (num_bytes > total_ - used_) {
    throw Error(ErrorKind::kDevice, "fake: cannot allocate {} bytes of memory; {} of {} are free", num_bytes,
                total_ - used_, total_);
  }
  if (num_bytes == 0) return Buffer(nullptr, 0, {}, nullptr);
  const size_t rounded = (static_cast<size_t>(num_bytes) + 63) / 64 * 64;
  void* data = std::aligned_alloc(64, rounded);
  TM_ASSERT(data != nullptr);
  std::memset(data, 0, rounded);
  used_ += num_bytes;
  peak_ = std::max(peak_, used_);
  ++allocations_;
  return Buffer(data, num_bytes, {}, [this](void* p, int64_t bytes) {
    std::free(p);
    used_ -= bytes;
  });
}

}  // namespace tokenmill::test
