#pragma once
#include <cstdint>
#include <string>

#include "kernels/device/cuda.h"

namespace tokenmill::cuda {

/// What a kernel may find wrong in the data of a step. Such work stops where it is; the host throws Error(kInternal) at
/// the next wait.
enum class Fault : int32_t {
  kNone,
  kRowOutside,
  kKvSlotOutside,
  kTopKOfShortlist,
  kShortlistOverflow,
  kNoIdListed,
};

/// In pinned host memory that the device writes: the first fault since the host last looked.
struct FaultRecord {
  int32_t fault;  ///< a Fault
  int32_t padding;
  int64_t found, limit;
};

/// What kernels get of it, by value.
struct FaultWord {
  FaultRecord* record;
  /// Keeps the first fault alone. Defined in fault.cuh.
  __device__ void report(Fault fault, int64_t found, int64_t limit) const;
};

/// One sentence on a fault: "row 9 of a matrix of 4 rows".
std::string describe(const FaultRecord& record);

}  // namespace tokenmill::cuda
