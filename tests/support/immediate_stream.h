#pragma once
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/core/check.h"
#include "kernels/device/stream.h"

namespace tokenmill::test {

/// A stream of host work that runs everything at once; exceptions come out of the call itself.
class ImmediateStream final : public Stream {
 public:
  void enqueue(std::function<void()> function) override {
    if (recorded_)
      recorded_->push_back(std::move(function));
    else
      function();
  }
  void copy(void* destination, const void* source, int64_t num_bytes) override {
    enqueue([=] { std::memcpy(destination, source, static_cast<size_t>(num_bytes)); });
  }
  Event record() override { return ++events_; }
  void wait(Event) override {}
  bool done(Event) override { return true; }
  void synchronize() override {}
  void begin_capture() override { recorded_ = std::make_unique<Functions>(); }
  std::unique_ptr<Recording> end_capture() override {
    auto recording = std::make_unique<Recorded>();
    recording->functions = std::move(*std::exchange(recorded_, nullptr));
    return recording;
  }
  void replay(Recording& recording) override {
    for (const auto& function : dynamic_cast<Recorded&>(recording).functions) function();
  }

 private:
  using Functions = std::vector<std::function<void()>>;
  struct Recorded final : Recording {
    Functions functions;
  };
  Event events_ = 0;
  std::unique_ptr<Functions> recorded_;
};

}  // namespace tokenmill::test
