#pragma once
// One emulated device for one test, and the shorthand that its tests share.
#include <cstdint>
#include <vector>

#include "kernels/device/cuda.h"
#include "kernels/emulation/runtime.h"

namespace tokenmill::test {

/// A clean runtime with the given settings; the settings of before come back at the end.
class EmulatedDevice {
 public:
  explicit EmulatedDevice(const emulation::Settings& settings = {}) : before_(emulation::settings()) {
    emulation::configure(settings);
    emulation::reset();
    cudaSetDevice(0);
  }
  ~EmulatedDevice() {
    emulation::reset();
    emulation::configure(before_);
  }
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

 private:
  emulation::Settings before_;
};

/// Device memory of one type that frees itself.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) { cudaMalloc(&data_, size * sizeof(T)); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() const { return data_; }
  /// Waits for the default stream only.
  std::vector<T> read() const {
    std::vector<T> values(size_);
    cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

/// A stream that the default stream does not wait for.
class DeviceStream {
 public:
  DeviceStream() { cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); }
  ~DeviceStream() { cudaStreamDestroy(stream_); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  operator cudaStream_t() const { return stream_; }  // handed to the C interface as it is

 private:
  cudaStream_t stream_ = nullptr;
};

class DeviceEvent {
 public:
  DeviceEvent() { cudaEventCreateWithFlags(&event_, cudaEventDisableTiming); }
  ~DeviceEvent() { cudaEventDestroy(event_); }
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;
  operator cudaEvent_t() const { return event_; }  // as above

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace tokenmill::test
