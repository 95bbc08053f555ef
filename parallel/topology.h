#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/cpu_limits.h"
#include "parallel/mpi.h"

namespace tokenmill::parallel {

/// "0-3<separator>8": ascending numbers, runs of them joined.
std::string describe_runs(const std::vector<int>& ascending, std::string_view separator);

/// A set of logical CPUs of one node.
class CpuSet {
 public:
  CpuSet() = default;
  explicit CpuSet(const std::vector<int>& cpus);
  /// The CPUs this process may run on (sched_getaffinity), whatever set the mask: launcher, cgroup or taskset.
  static CpuSet of_this_process();
  bool contains(int cpu) const;
  void add(int cpu);
  int count() const;
  std::vector<int> cpus() const;  ///< ascending
  /// "0-3,8": as taskset prints it.
  std::string describe() const;
  bool operator==(const CpuSet&) const = default;

 private:
  std::vector<uint64_t> words_;  // no zero word at the end
};

/// What the CPUs of a set belong to.
struct CpuPlace {
  std::vector<int> numa_domains;  ///< numbered as the system does, ascending; empty where it does not say
  std::string model;              ///< "AMD EPYC 9654 96-Core Processor"; empty where it does not say
  bool operator==(const CpuPlace&) const = default;
};
/// By hwloc; on this node.
CpuPlace place_of(const CpuSet& cpus);
/// The same from a description of a node in hwloc's XML. Throws Error(kDevice) when it cannot be read.
CpuPlace place_of(const CpuSet& cpus, const std::string& hwloc_xml);

/// What one rank knows about itself.
struct RankFacts {
  std::string host;
  int node_root = 0;  ///< lowest world rank among those it can share memory with
  CpuSet cpus;
  CpuPlace cpu_place = {};
  std::vector<CpuLimit> cpu_limits = {};
};

/// Where a rank is.
struct RankPlace {
  std::string host;
  int node = 0;        ///< 0-based, in order of each node's lowest world rank
  int local_rank = 0;  ///< 0-based on its node, in order of world rank
  /// Its share of the CPUs it may run on: a CPU that k ranks of the node may use counts 1/k. Rounded down, at least 1.
  /// Unbound ranks share the node; a rank bound to one core has one thread. Not more than cpu_limit.
  int num_threads = 1;
  CpuSet cpus;
  CpuPlace cpu_place = {};
  /// CPUs' worth of time that its control groups allow it, each group's divided among the ranks of the node in it.
  std::optional<double> cpu_limit = {};
};

/// All ranks of the world; the same on every rank.
struct Topology {
  std::vector<RankPlace> ranks;  ///< by world rank
  int num_nodes = 0;
  /// World ranks sorted by (node, local rank): the order the grid is laid over (groups.h).
  std::vector<int> ranks_by_node() const;
  /// Whether two ranks are on one node and their CPUs in the same memory domains: what is near one is near the other.
  /// Ranks of a node whose domains are not known count as near each other.
  bool are_near(int a, int b) const;
};

/// Pure: facts by world rank.
Topology lay_out(const std::vector<RankFacts>& facts);
/// Collective over world. Uses MPI, the affinity mask and hwloc, never SLURM_*.
Topology gather_topology(const Comm& world);
/// Ranks that have not been started: ranks_per_node on each node in turn, the rest on the last. Every node is like this
/// machine, and every rank may run where this process may. Hosts have no names.
Topology planned_topology(int num_ranks, int ranks_per_node);

}  // namespace tokenmill::parallel
