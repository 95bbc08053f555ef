#pragma once
#include <cstdint>

namespace tokenmill {

/// How often a byte that several nodes want is read.
enum class LoadMode : uint8_t {
  kNode,       ///< once per node: files on local disks, or a file system that is faster than the network
  kBroadcast,  ///< once per job: nodes read disjoint parts of the files and pass them on over MPI
};

/// Where weights come from.
enum class LoadFormat : uint8_t {
  kAuto,   ///< the checkpoint's files
  kDummy,  ///< random numbers of the shapes that the configuration asks for (random_weights.h): to measure speed
};

}  // namespace tokenmill
