#pragma once
#include <string>

#include "kernels/device/device.h"

namespace tokenmill {

/// Devices of a kind that this process sees; 1 for the CPU. 0 for CUDA in a build without it.
int num_devices(DeviceKind kind);

/// What --device NAME means for a rank. "auto" is a GPU in builds for GPUs where one is visible, else the CPU. The
/// ranks of a node take the visible GPUs in turn. Throws Error(kDevice) when none is there, or none that will do.
Device choose_device(const std::string& name, int local_rank);

/// Equal for the ranks of a node whose memory is the same.
std::string memory_owner(Device device);

/// "CUDA 13.0", "CUDA 13.0, emulated on the host", "no CUDA".
std::string describe_cuda_build();

}  // namespace tokenmill
