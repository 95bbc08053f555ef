#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace tokenmill {

/// A recorded sequence of stream work, replayable while every buffer it names is alive.
class Recording {
 public:
  virtual ~Recording() = default;
};

/// An ordered queue of device work: native launches (enqueued by Ops), copies and host functions such as an MPI exchange.
/// The CPU implementation may run work at once or later; results may be read after synchronize() or a waited event.
/// One thread uses a stream at a time.
class Stream {
 public:
  using Event = uint64_t;
  virtual ~Stream() = default;
  /// Runs function on the host in stream order. An exception it throws surfaces at the next synchronize() or wait().
  virtual void enqueue(std::function<void()> function) = 0;
  /// Copies num_bytes in stream order; either side may be host (allocate_host) or device memory. No overlap.
  virtual void copy(void* destination, const void* source, int64_t num_bytes) = 0;
  /// Marks the work enqueued so far; wait() returns when it is done. Events are cheap counters.
  virtual Event record() = 0;
  virtual void wait(Event event) = 0;
  virtual bool done(Event event) = 0;
  virtual void synchronize() = 0;
  /// Between begin_capture and end_capture work is recorded, not run.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<Recording> end_capture() = 0;
  virtual void replay(Recording& recording) = 0;

  /// For libraries that enqueue work themselves: the cudaStream_t of a CUDA stream, else nullptr.
  virtual void* native_handle() const { return nullptr; }
  /// wait() and synchronize() run every check before they return, and now and then while they block. What a check throws
  /// comes out of them: why the work will never be done, or why its results mean nothing. A stream that runs work when it
  /// is enqueued never blocks and asks no checks. owner: who takes its check away, once.
  void add_check(const void* owner, std::function<void()> check) { checks_.emplace_back(owner, std::move(check)); }
  void remove_check(const void* owner) {
    std::erase_if(checks_, [owner](const auto& entry) { return entry.first == owner; });
  }

 protected:
  void run_checks() const {
    for (const auto& [owner, check] : checks_) check();
  }

 private:
  std::vector<std::pair<const void*, std::function<void()>>> checks_;
};

}  // namespace tokenmill
