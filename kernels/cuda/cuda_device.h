#pragma once
#include <cstdint>
#include <string>

#include "kernels/device/device.h"

namespace tokenmill::cuda {

/// Devices that this process sees (CUDA_VISIBLE_DEVICES counts); 0 without a device or driver.
int num_visible_devices();

/// The device of a rank, local_rank modulo the visible devices, made current for the calling thread.
/// Throws Error(kDevice) when none is visible, or when its compute capability is below 8.0.
Device select_device(int local_rank);

/// Makes a device current for the calling thread while it lives. Another thread than the one that selected the device
/// needs it around allocations and launches.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
};

struct DeviceFacts {
  std::string name;
  std::string pci_bus_id;      ///< as the kernel writes it under /sys/bus/pci/devices, in upper case
  int compute_capability = 0;  ///< 10 * major + minor
  int num_multiprocessors = 0;
  int64_t total_bytes = 0, free_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t smem_per_block_bytes = 0;  ///< with the kernel's attribute raised
};
DeviceFacts device_facts(Device device);

}  // namespace tokenmill::cuda
