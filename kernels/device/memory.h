#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "kernels/device/device.h"

namespace tokenmill {

/// Owner of one piece of memory; move-only, frees itself. Alignment at least 64 bytes.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, int64_t num_bytes, Device device, std::function<void(void*, int64_t)> release)
      : data_(data), num_bytes_(num_bytes), device_(device), release_(std::move(release)) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr && release_) release_(data_, num_bytes_);
  }
  void* data() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }
  Device device() const { return device_; }
  /// Only for memory the host can read (CPU device, host staging).
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), static_cast<size_t>(num_bytes_)}; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
    std::swap(device_, other.device_);
    std::swap(release_, other.release_);
  }
  void* data_ = nullptr;
  int64_t num_bytes_ = 0;
  Device device_;
  std::function<void(void*, int64_t)> release_;
};

/// A device's memory. All memory that grows with load is taken once at start-up; a step never allocates.
class Memory {
 public:
  virtual ~Memory() = default;
  /// Device memory, zeroed, aligned to 64 bytes or better. num_bytes 0 gives an empty buffer.
  /// Throws Error(kDevice) naming the bytes asked for and what is free.
  virtual Buffer allocate(int64_t num_bytes) = 0;
  /// Host memory the device copies from and to without staging (pinned for CUDA).
  virtual Buffer allocate_host(int64_t num_bytes) = 0;
  virtual int64_t total_bytes() const = 0;  ///< capacity of the device
  virtual int64_t used_bytes() const = 0;   ///< allocated through this object now
  virtual int64_t peak_bytes() const = 0;   ///< highest used_bytes so far
  /// What the device would still give; of a GPU all that others have taken is counted, libraries and graphs too.
  virtual int64_t free_bytes() const { return total_bytes() - used_bytes(); }
};

}  // namespace tokenmill
