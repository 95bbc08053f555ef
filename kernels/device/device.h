#pragma once
#include <cstdint>
#include <string>

namespace tokenmill {

enum class DeviceKind : uint8_t { kCpu, kCuda };

/// One device as a rank sees it. index counts the visible devices of that kind; 0 for the CPU.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:1".
inline std::string to_string(Device device) {
  return device.kind == DeviceKind::kCpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace tokenmill
