#pragma once
#include <cstdint>
#include <string>

namespace tokenmill {

enum class DeviceKind : uint8_t { kCpu, kCuda };

/// "cpu", "cuda".
inline const char* to_string(DeviceKind kind) { return kind == DeviceKind::kCpu ? "cpu" : "cuda"; }

/// One device as a rank sees it. index counts the visible devices of that kind; 0 for the CPU.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:1".
inline std::string to_string(Device device) {
  const std::string kind = to_string(device.kind);
  return device.kind == DeviceKind::kCpu ? kind : kind + ":" + std::to_string(device.index);
}

}  // namespace tokenmill
