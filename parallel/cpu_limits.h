#pragma once
#include <string>
#include <vector>

namespace tokenmill::parallel {

/// CPU time that a control group may use, whatever CPUs its processes run on.
struct CpuLimit {
  std::string group;  ///< tells the groups of a node apart
  double cpus = 0;    ///< seconds of CPU time per second
  bool operator==(const CpuLimit&) const = default;
};

/// Of all control groups that this process is in, its own first: cpu.max (version 2), cpu.cfs_quota_us (version 1).
/// root: what stands in front of /proc and /sys, for tests.
std::vector<CpuLimit> cpu_limits(const std::string& root = "");

}  // namespace tokenmill::parallel
