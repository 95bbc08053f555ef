#include "parallel/cpu_limits.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "kernels/core/control_group.h"
#include "tests/support/temp_dir.h"

namespace tokenmill::parallel {
namespace {

/// A made-up /proc and /sys.
class Tree {
 public:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root() const { return dir_.path(); }
  std::vector<double> limits() const {
    std::vector<double> cpus;
    for (const CpuLimit& limit : cpu_limits(root())) cpus.push_back(limit.cpus);
    return cpus;
  }

 private:
  test::TempDir dir_;
};

TEST_CASE("version 2: cpu.max of the process's group and of those around it") {
  const Tree tree;
  CHECK(tree.limits().empty());
  tree.write("/proc/self/cgroup", "0::/job/step\n");
  CHECK(tree.limits().empty());
  tree.write("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  CHECK(tree.limits().empty());
  tree.write("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  CHECK(tree.limits() == std::vector<double>{1.5});
  tree.write("/sys/fs/cgroup/job/step/cpu.max", "50000 25000\n");
  CHECK(tree.limits() == std::vector<double>{2, 1.5});
  tree.write("/sys/fs/cgroup/cpu.max", "800000 100000\n");
  CHECK(tree.limits() == std::vector<double>{2, 1.5, 8});
  const std::vector<CpuLimit> limits = cpu_limits(tree.root());
  CHECK(limits[0].group != limits[1].group);
  tree.write("/proc/self/cgroup", "0::/job\n");  // as a process of the group around it sees the same group
  CHECK(cpu_limits(tree.root())[0] == limits[1]);
}

TEST_CASE("version 1: quota and period, of the controller cpu alone") {
  const Tree tree;
  tree.write("/proc/self/cgroup", "9:cpuset:/elsewhere\n7:cpu,cpuacct:/job\n5:memory:/job\nnothing\n0::/job\n");
  tree.write("/sys/fs/cgroup/cpu/elsewhere/cpu.cfs_quota_us", "100000\n");
  tree.write("/sys/fs/cgroup/cpu/elsewhere/cpu.cfs_period_us", "100000\n");
  CHECK(tree.limits().empty());
  tree.write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
  tree.write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  CHECK(tree.limits().empty());
  tree.write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "350000\n");
  CHECK(tree.limits() == std::vector<double>{3.5});
  // A container that sees the names of the host, and its own group as the root.
  tree.write("/proc/self/cgroup", "7:cpu,cpuacct:/docker/0123\n");
  tree.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  tree.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(tree.limits() == std::vector<double>{2});
}

TEST_CASE("directories go from a group to the root") {
  const Tree tree;
  tree.write("/proc/self/cgroup", "4:memory:/a/b\n0::/\n");
  const std::string top = tree.root() + "/sys/fs/cgroup";
  CHECK(control_group_directories("memory", tree.root()) ==
        std::vector<std::string>{top + "/memory/a/b", top + "/memory/a", top + "/memory", top});
  CHECK(control_group_directories("cpu", tree.root()) == std::vector<std::string>{top});
}

}  // namespace
}  // namespace tokenmill::parallel
