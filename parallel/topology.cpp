#include "parallel/topology.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>
#include <sstream>
#include <tuple>

#include "kernels/core/check.h"

namespace tokenmill::parallel {

std::string describe_runs(const std::vector<int>& ascending, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < ascending.size();) {
    size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : separator, ascending[i]);
    if (last > i) text += fmt::format("-{}", ascending[last]);
    i = last + 1;
  }
  return text;
}

CpuSet::CpuSet(const std::vector<int>& cpus) {
  for (const int cpu : cpus) add(cpu);
}

CpuSet CpuSet::of_this_process() {
  // The kernel refuses masks smaller than its own: grow until it fits.
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
    std::vector<unsigned long> mask(static_cast<size_t>(capacity) / (8 * sizeof(unsigned long)));
    const size_t bytes = mask.size() * sizeof(unsigned long);
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (sched_getaffinity(0, bytes, set) == 0) {
      CpuSet result;
      for (int cpu = 0; cpu < capacity; ++cpu)
        if (CPU_ISSET_S(cpu, bytes, set)) result.add(cpu);
      return result;
    }
    if (errno != EINVAL) break;
  }
  throw Error(ErrorKind::kDevice, "sched_getaffinity: {}", std::strerror(errno));
}

bool CpuSet::contains(int cpu) const {
  const size_t word = static_cast<size_t>(cpu) / 64;
  return word < words_.size() && (words_[word] >> (cpu % 64) & 1) != 0;
}

void CpuSet::add(int cpu) {
  TM_ASSERT(cpu >= 0);
  const size_t word = static_cast<size_t>(cpu) / 64;
  if (word >= words_.size()) words_.resize(word + 1);
  words_[word] |= uint64_t{1} << (cpu % 64);
}

int CpuSet::count() const {
  return std::accumulate(words_.begin(), words_.end(), 0, [](int n, uint64_t word) { return n + std::popcount(word); });
}

std::vector<int> CpuSet::cpus() const {
  std::vector<int> result;
  for (size_t word = 0; word < words_.size(); ++word)
    for (uint64_t bits = words_[word]; bits != 0; bits &= bits - 1)
      result.push_back(static_cast<int>(word) * 64 + std::countr_zero(bits));
  return result;
}

std::string CpuSet::describe() const { return describe_runs(cpus(), ","); }

namespace {

/// A node as hwloc describes it.
class NodeDescription {
 public:
  /// xml null: this node.
  explicit NodeDescription(const std::string* xml) {
    if (hwloc_topology_init(&topology_) != 0) throw Error(ErrorKind::kDevice, "hwloc_topology_init failed");
    const bool found =
        xml == nullptr || hwloc_topology_set_xmlbuffer(topology_, xml->data(), static_cast<int>(xml->size() + 1)) == 0;
    if (!found || hwloc_topology_load(topology_) != 0) {
      hwloc_topology_destroy(topology_);
      throw Error(ErrorKind::kDevice, "hwloc does not understand the description of this node");
    }
  }
  ~NodeDescription() { hwloc_topology_destroy(topology_); }
  NodeDescription(const NodeDescription&) = delete;
  NodeDescription& operator=(const NodeDescription&) = delete;

  CpuPlace place_of(const CpuSet& cpus) const {
    CpuPlace place;
    hwloc_obj_t domain = nullptr;
    while ((domain = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, domain)) != nullptr) {
      if (holds_any(domain, cpus)) place.numa_domains.push_back(static_cast<int>(domain->os_index));
    }
    std::sort(place.numa_domains.begin(), place.numa_domains.end());
    hwloc_obj_t package = nullptr;
    while ((package = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, package)) != nullptr) {
      const char* model = hwloc_obj_get_info_by_name(package, "CPUModel");
      if (model != nullptr && holds_any(package, cpus)) place.model = model;
    }
    return place;
  }

 private:
  static bool holds_any(hwloc_obj_t object, const CpuSet& cpus) {
    if (object->cpuset == nullptr) return false;
    const std::vector<int> all = cpus.cpus();
    return std::any_of(all.begin(), all.end(),
                       [&](int cpu) { return hwloc_bitmap_isset(object->cpuset, static_cast<unsigned>(cpu)) != 0; });
  }
  hwloc_topology_t topology_ = nullptr;
};

}  // namespace

CpuPlace place_of(const CpuSet& cpus) { return NodeDescription(nullptr).place_of(cpus); }
CpuPlace place_of(const CpuSet& cpus, const std::string& hwloc_xml) {
  return NodeDescription(&hwloc_xml).place_of(cpus);
}

std::vector<int> Topology::ranks_by_node() const {
  std::vector<int> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::tuple(ranks[a].node, ranks[a].local_rank) < std::tuple(ranks[b].node, ranks[b].local_rank);
  });
  return order;
}

bool Topology::are_near(int a, int b) const {
  const RankPlace &one = ranks.at(static_cast<size_t>(a)), &other = ranks.at(static_cast<size_t>(b));
  return one.node == other.node && one.cpu_place.numa_domains == other.cpu_place.numa_domains;
}

namespace {

/// What the ranks of a node use together.
struct NodeUse {
  int num_ranks = 0;
  std::map<int, int> users_of_cpu;
  std::map<std::string, int> users_of_group;  // of CpuLimit::group
};

std::optional<double> limit_share(const RankFacts& facts, const NodeUse& node) {
  std::optional<double> least;
  for (const CpuLimit& limit : facts.cpu_limits) {
    const double share = limit.cpus / node.users_of_group.at(limit.group);
    if (!least || share < *least) least = share;
  }
  return least;
}

int thread_share(const RankPlace& place, const NodeUse& node) {
  double share = 0;
  for (const int cpu : place.cpus.cpus()) share += 1.0 / node.users_of_cpu.at(cpu);
  if (place.cpu_limit) share = std::min(share, *place.cpu_limit);
  return std::max(1, static_cast<int>(share + 1e-6));  // thirds of a CPU add up to a whole one
}

}  // namespace

Topology lay_out(const std::vector<RankFacts>& facts) {
  Topology topology;
  std::map<int, int> node_of_root;
  std::vector<NodeUse> nodes;
  for (const RankFacts& fact : facts) {
    const auto [entry, is_new] = node_of_root.emplace(fact.node_root, static_cast<int>(node_of_root.size()));
    if (is_new) nodes.emplace_back();
    NodeUse& node = nodes[static_cast<size_t>(entry->second)];
    for (const int cpu : fact.cpus.cpus()) ++node.users_of_cpu[cpu];
    for (const CpuLimit& limit : fact.cpu_limits) ++node.users_of_group[limit.group];
    topology.ranks.push_back({.host = fact.host,
                              .node = entry->second,
                              .local_rank = node.num_ranks++,
                              .num_threads = 1,
                              .cpus = fact.cpus,
                              .cpu_place = fact.cpu_place});
  }
  topology.num_nodes = static_cast<int>(nodes.size());
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    RankPlace& place = topology.ranks[rank];
    const NodeUse& node = nodes[static_cast<size_t>(place.node)];
    place.cpu_limit = limit_share(facts[rank], node);
    place.num_threads = thread_share(place, node);
  }
  return topology;
}

namespace {

/// Neither host nor node.
RankFacts facts_of_this_process() {
  RankFacts facts;
  facts.cpus = CpuSet::of_this_process();
  facts.cpu_place = place_of(facts.cpus);
  facts.cpu_limits = cpu_limits();
  return facts;
}

/// One line each: node root, host, CPU model, NUMA domains, CPUs, control groups with limits.
std::string encode(const RankFacts& facts) {
  std::string text = fmt::format("{}\n{}\n{}\n", facts.node_root, facts.host, facts.cpu_place.model);
  for (const int domain : facts.cpu_place.numa_domains) text += fmt::format("{} ", domain);
  text += '\n';
  for (const int cpu : facts.cpus.cpus()) text += fmt::format("{} ", cpu);
  text += '\n';
  for (const CpuLimit& limit : facts.cpu_limits) text += fmt::format("{} {} ", limit.group, limit.cpus);
  return text;
}

RankFacts decode(const std::string& text) {
  std::istringstream lines(text);
  std::string root, domains, cpus, limits;
  RankFacts facts;
  std::getline(lines, root);
  std::getline(lines, facts.host);
  std::getline(lines, facts.cpu_place.model);
  std::getline(lines, domains);
  std::getline(lines, cpus);
  std::getline(lines, limits);
  facts.node_root = std::stoi(root);
  std::istringstream domain_list(domains), cpu_list(cpus), limit_list(limits);
  for (int domain = 0; domain_list >> domain;) facts.cpu_place.numa_domains.push_back(domain);
  for (int cpu = 0; cpu_list >> cpu;) facts.cpus.add(cpu);
  for (CpuLimit limit; limit_list >> limit.group >> limit.cpus;) facts.cpu_limits.push_back(limit);
  return facts;
}

}  // namespace

Topology gather_topology(const Comm& world) {
  RankFacts mine = facts_of_this_process();
  mine.host = host_name();
  const Comm node = world.split_shared();
  mine.node_root = world.rank();
  TM_MPI(MPI_Bcast(&mine.node_root, 1, MPI_INT, 0, node.handle()));
  std::vector<RankFacts> facts;
  for (const std::string& text : gather_bytes(world, encode(mine))) facts.push_back(decode(text));
  return lay_out(facts);
}

Topology planned_topology(int num_ranks, int ranks_per_node) {
  TM_ASSERT(num_ranks >= 1 && ranks_per_node >= 1);
  const RankFacts here = facts_of_this_process();
  std::vector<RankFacts> facts(static_cast<size_t>(num_ranks), here);
  for (int rank = 0; rank < num_ranks; ++rank)
    facts[static_cast<size_t>(rank)].node_root = rank / ranks_per_node * ranks_per_node;
  return lay_out(facts);
}

}  // namespace tokenmill::parallel
