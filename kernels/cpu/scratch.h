#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace tokenmill::cpu {

/// A grow-only piece of host memory, aligned to 64 bytes, contents undefined. After warm-up it never allocates.
class Scratch {
 public:
  /// At least `count` elements of T; what an earlier call returned is dead.
  template <typename T = float>
  T* get(int64_t count) {
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
    if (bytes > bytes_) {
      data_.reset();
      bytes_ = 0;
      data_.reset(std::aligned_alloc(64, static_cast<size_t>(bytes)));
      if (data_ == nullptr) throw std::bad_alloc();
      bytes_ = bytes;
    }
    return static_cast<T*>(data_.get());
  }

  int64_t num_bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::unique_ptr<void, Free> data_;
  int64_t bytes_ = 0;
};

}  // namespace tokenmill::cpu
