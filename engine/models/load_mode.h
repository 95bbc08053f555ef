#pragma once
#include <cstdint>

namespace tokenmill {

/// How often a byte that several nodes want is read.
enum class LoadMode : uint8_t {
  kNode,       ///< once per node: files on local disks, or a file system that is faster than the network
  kBroadcast,  ///< once per job: nodes read disjoint parts of the files and pass them on over MPI
};

}  // namespace tokenmill
