#pragma once
#include <memory>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/cuda_stream.h"
#include "parallel/connect.h"

namespace tokenmill::parallel {

/// A communicator of all ranks, each with a device, and what it needs.
struct DeviceGroup {
  DeviceGroup()
      : group(Comm::world()),
        device(cuda::select_device(group.split_shared().rank())),
        memory(device),
        stream(device),
        communicator(connect(group, device, stream, progress).communicator) {}
  Communicator* operator->() { return communicator.get(); }
  int rank() const { return group.rank(); }
  int size() const { return group.size(); }

  Comm group;
  Device device;
  cuda::CudaMemory memory;
  cuda::CudaStream stream;
  HostProgress progress;
  std::unique_ptr<Communicator> communicator;
};

}  // namespace tokenmill::parallel
