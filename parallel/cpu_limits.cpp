#include "parallel/cpu_limits.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>

#include "kernels/core/control_group.h"

namespace tokenmill::parallel {
namespace {

/// Microseconds per period; 0: no limit.
double read_limit(const std::string& directory) {
  double quota = 0, period = 0;
  std::ifstream file(directory + "/cpu.max");  // "150000 100000" or "max 100000"
  if (!(file >> quota >> period)) {
    std::ifstream quota_file(directory + "/cpu.cfs_quota_us"), period_file(directory + "/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) return 0;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

std::vector<CpuLimit> cpu_limits(const std::string& root) {
  std::vector<CpuLimit> limits;
  for (const std::string& directory : control_group_directories("cpu", root)) {
    const double cpus = read_limit(directory);
    struct stat info {};
    // By device and inode: each container may call its own group "/".
    if (cpus > 0 && ::stat(directory.c_str(), &info) == 0)
      limits.push_back({.group = fmt::format("{}:{}", info.st_dev, info.st_ino), .cpus = cpus});
  }
  return limits;
}

}  // namespace tokenmill::parallel
