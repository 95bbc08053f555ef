#include "kernels/device_choice.h"

#include "kernels/core/error.h"
#ifdef TOKENMILL_CUDA
#include <fmt/format.h>

#include "kernels/cuda/cuda_device.h"
#include "kernels/device/cuda.h"
#endif

namespace tokenmill {

#ifdef TOKENMILL_CUDA
namespace {

#ifdef TOKENMILL_CUDA_EMULATED
constexpr bool kEmulated = true;  // for tests, and too slow to be chosen by itself
#else
constexpr bool kEmulated = false;
#endif

}  // namespace

int num_devices(DeviceKind kind) { return kind == DeviceKind::kCpu ? 1 : cuda::num_visible_devices(); }

Device choose_device(const std::string& name, int local_rank) {
  if (name == "cuda" || (name == "auto" && !kEmulated && num_devices(DeviceKind::kCuda) > 0))
    return cuda::select_device(local_rank);
  return {};
}

std::string memory_owner(Device device) {
  return device.kind == DeviceKind::kCpu ? "host" : cuda::device_facts(device).pci_bus_id;
}

std::string describe_cuda_build() {
  return fmt::format("CUDA {}.{}{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
                     kEmulated ? ", emulated on the host" : "");
}
#else
int num_devices(DeviceKind kind) { return kind == DeviceKind::kCpu ? 1 : 0; }

Device choose_device(const std::string& name, int) {
  if (name == "cuda")
    throw Error(ErrorKind::kDevice, "--device cuda: this build of tokenmill has no CUDA; choose --device cpu");
  return {};
}

std::string memory_owner(Device) { return "host"; }

std::string describe_cuda_build() { return "no CUDA"; }
#endif

}  // namespace tokenmill
