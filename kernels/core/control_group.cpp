#include "kernels/core/control_group.h"

#include <fstream>

namespace tokenmill {

std::vector<std::string> control_group_directories(const std::string& controller, const std::string& root) {
  std::vector<std::string> directories;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "7:cpu,cpuacct:/job/step" or, of version 2, "0::/job/step"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_version_2 = controllers.empty();
    if (!is_version_2 && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
    const std::string top = root + "/sys/fs/cgroup" + (is_version_2 ? "" : "/" + controller);
    std::string group = line.substr(second + 1);
    while (!group.empty() && group != "/") {
      directories.push_back(top + group);
      group.resize(group.rfind('/'));
    }
    directories.push_back(top);
  }
  return directories;
}

}  // namespace tokenmill
