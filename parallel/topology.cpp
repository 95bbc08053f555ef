#include "parallel/topology.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>
#include <tuple>

#include "kernels/core/check.h"

namespace tokenmill::parallel {

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

std::string CpuSet::describe() const {
  std::string text;
  const std::vector<int> all = cpus();
  for (size_t i = 0; i < all.size();) {
    size_t last = i;
    while (last + 1 < all.size() && all[last + 1] == all[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", all[i]);
    if (last > i) text += fmt::format("-{}", all[last]);
    i = last + 1;
  }
  return text;
}

std::vector<int> Topology::ranks_by_node() const {
  std::vector<int> order(ranks.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::tuple(ranks[a].node, ranks[a].local_rank) < std::tuple(ranks[b].node, ranks[b].local_rank);
  });
  return order;
}

Topology lay_out(const std::vector<RankFacts>& facts) {
  Topology topology;
  std::map<int, int> node_of_root;
  std::vector<int> ranks_on_node;
  std::vector<std::map<int, int>> users_of_cpu;  // per node: CPU -> ranks that may use it
  for (const RankFacts& fact : facts) {
    const auto [entry, is_new] = node_of_root.emplace(fact.node_root, static_cast<int>(node_of_root.size()));
    const int node = entry->second;
    if (is_new) {
      ranks_on_node.push_back(0);
      users_of_cpu.emplace_back();
    }
    for (const int cpu : fact.cpus.cpus()) ++users_of_cpu[node][cpu];
    topology.ranks.push_back(
        {.host = fact.host, .node = node, .local_rank = ranks_on_node[node]++, .num_threads = 1, .cpus = fact.cpus});
  }
  topology.num_nodes = static_cast<int>(node_of_root.size());
  for (RankPlace& place : topology.ranks) {
    double share = 0;
    for (const int cpu : place.cpus.cpus()) share += 1.0 / users_of_cpu[place.node][cpu];
    place.num_threads = std::max(1, static_cast<int>(share + 1e-6));  // thirds of a CPU add up to a whole one
  }
  return topology;
}

namespace {

std::string encode(const RankFacts& facts) {
  std::string text = fmt::format("{} {}", facts.node_root, facts.host);
  for (const int cpu : facts.cpus.cpus()) text += fmt::format("\n{}", cpu);
  return text;
}

RankFacts decode(const std::string& text) {
  RankFacts facts;
  const size_t space = text.find(' ');
  const size_t first_line = std::min(text.find('\n'), text.size());
  facts.node_root = std::stoi(text.substr(0, space));
  facts.host = text.substr(space + 1, first_line - space - 1);
  for (size_t at = first_line; at < text.size(); at = std::min(text.find('\n', at + 1), text.size()))
    facts.cpus.add(std::stoi(text.substr(at + 1)));
  return facts;
}

}  // namespace

Topology gather_topology(const Comm& world) {
  RankFacts mine;
  mine.host = host_name();
  mine.cpus = CpuSet::of_this_process();
  const Comm node = world.split_shared();
  mine.node_root = world.rank();
  TM_MPI(MPI_Bcast(&mine.node_root, 1, MPI_INT, 0, node.handle()));
  std::vector<RankFacts> facts;
  for (const std::string& text : gather_bytes(world, encode(mine))) facts.push_back(decode(text));
  return lay_out(facts);
}

}  // namespace tokenmill::parallel
