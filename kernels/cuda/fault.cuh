#pragma once
#include "kernels/cuda/fault.h"

namespace tokenmill::cuda {

__device__ inline void FaultWord::report(Fault fault, int64_t found, int64_t limit) const {
  if (atomicCAS(&record->fault, 0, static_cast<int32_t>(fault)) != 0) return;
  record->found = found;
  record->limit = limit;
  __threadfence_system();
}

}  // namespace tokenmill::cuda
