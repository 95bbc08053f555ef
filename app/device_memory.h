#pragma once
#include <cstdint>

#include "app/build.h"

namespace tokenmill::app {

/// Of a rank on a GPU whose weights are loaded and whose groups are connected: what the driver holds beside what the
/// memory plan lists, and will hold when the steps' graphs are recorded (context, libraries, NCCL, graphs; what other
/// programs have taken, too). Measured by a runner with one KV block that has recorded one graph of each kind: the
/// others are as large. Ranks that share the device count equal shares. Collective over the ranks of a stage. Throws
/// Error(kDevice) when there is not even room for that.
int64_t measure_driver_bytes(const RunOptions& options, Replica& replica);

}  // namespace tokenmill::app
