#include "app/rank_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <tuple>

namespace tokenmill::app {
namespace {

/// The numbers of a rank; kDomain and kCpu are the first of its memory domains (-1: unknown) and of its CPUs.
enum Field { kRank, kNode, kLocal, kReplica, kStage, kPart, kDomain, kCpu, kNumFields };
using Numbers = std::array<int, kNumFields>;

/// Ranks on one line: the first one's numbers, and what is added to them again and again.
struct Line {
  struct Step {
    int count = 1;
    Numbers each{};
    auto operator<=>(const Step&) const = default;  // NOLINT(modernize-use-nullptr): clang 14 sees a 0 in it
  };
  Numbers first{};
  const parallel::RankPlace* place = nullptr;  ///< of the first rank
  std::string rest;                            ///< what is equal for all but the numbers
  std::vector<Step> steps;

  /// Of each rank: node by node, replica by replica.
  std::vector<int> each_value(Field field) const {
    std::vector<int> all{first[field]};
    for (const Step& step : steps) {
      const size_t before = all.size();
      for (int i = 1; i < step.count; ++i)
        for (size_t v = 0; v < before; ++v) all.push_back(all[v] + i * step.each[field]);
    }
    return all;
  }
  /// Ascending, each once.
  std::vector<int> values(Field field) const {
    std::vector<int> all = each_value(field);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  /// Whether `next` goes on as the last step does; takes it in.
  bool append(const Line& next) {
    Step& step = steps.back();
    Numbers each;
    for (size_t f = 0; f < each.size(); ++f) each[f] = next.first[f] - first[f] - (step.count - 1) * step.each[f];
    if (step.count > 1 && each != step.each) return false;
    step.each = each;
    ++step.count;
    return true;
  }
};

/// Joins lines that are alike in the fields `equal`, and from one to the next of which all others change by the same.
std::vector<Line> fold(const std::vector<Line>& lines, const std::vector<Field>& equal) {
  std::vector<Line> out;
  std::map<std::tuple<std::string, std::vector<int>, std::vector<Line::Step>>, size_t> latest;
  for (const Line& line : lines) {
    std::vector<int> alike;
    alike.reserve(equal.size());
    for (const Field field : equal) alike.push_back(line.first[field]);
    const auto [at, is_new] = latest.try_emplace({line.rest, alike, line.steps}, out.size());
    if (!is_new && out[at->second].append(line)) continue;
    at->second = out.size();
    out.push_back(line);
    out.back().steps.emplace_back();
  }
  return out;
}

/// "0-3, 8-11, ..., 56-59": four runs at most.
std::string describe_some(const std::vector<int>& numbers) {
  std::string text = parallel::describe_runs(numbers, ", ");
  if (std::count(text.begin(), text.end(), ',') < 4) return text;
  return text.substr(0, text.find(',', text.find(',') + 1)) + ", ..." + text.substr(text.rfind(','));
}

std::string plural(const char* word, const std::vector<int>& numbers) {
  return fmt::format("{}{} {}", word, numbers.size() == 1 ? "" : "s", describe_some(numbers));
}

/// Numbers of the first rank, the same for the others with what their first one is more: "CPUs 0-31 (16 each)".
std::string describe_sets(const char* word, const std::vector<int>& set, const std::vector<int>& firsts) {
  if (set.empty()) return fmt::format("{} unknown", word);
  const size_t size = set.size();
  std::vector<int> all;
  for (const int first : firsts)
    for (const int number : set) all.push_back(number + first - firsts.front());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return plural(word, all) + (firsts.size() > 1 && size > 1 ? fmt::format(" ({} each)", size) : "");
}

std::string relative(std::vector<int> numbers) {
  const int first = numbers.empty() ? 0 : numbers.front();
  for (int& number : numbers) number -= first;
  return parallel::describe_runs(numbers, ",");
}

std::vector<Line> all_lines(const parallel::Topology& topology, const parallel::Grid& grid, const RankDevices& devices) {
  const std::vector<parallel::GridPlace> places = parallel::lay_grid(topology, grid);
  std::vector<Line> lines;
  for (const int rank : topology.ranks_by_node()) {
    const parallel::RankPlace& at = topology.ranks[static_cast<size_t>(rank)];
    const parallel::GridPlace& place = places[static_cast<size_t>(rank)];
    const std::vector<int> cpus = at.cpus.cpus(), &domains = at.cpu_place.numa_domains;
    const int64_t threads = devices.threads.value_or(at.num_threads);
    const std::string limit = at.cpu_limit ? fmt::format(" (time of {:.1f})", *at.cpu_limit) : "";
    lines.push_back({.first = {rank, at.node, at.local_rank, place.dp_rank, place.pp_rank, place.tp_rank,
                               domains.empty() ? -1 : domains.front(), cpus.empty() ? -1 : cpus.front()},
                     .place = &at,
                     .rest = fmt::format("{}, {} thread{}, {}|{}|{}", limit, threads, threads == 1 ? "" : "s",
                                         devices.device, relative(domains), relative(cpus)),
                     .steps = {}});
  }
  return lines;
}

/// " (n0 ... n7)"; empty for hosts without a name.
std::string describe_hosts(const parallel::Topology& topology, const std::vector<int>& ranks) {
  const std::string& first = topology.ranks[static_cast<size_t>(ranks.front())].host;
  const std::string& last = topology.ranks[static_cast<size_t>(ranks.back())].host;
  if (first.empty()) return "";
  return first == last ? fmt::format(" ({})", first) : fmt::format(" ({} ... {})", first, last);
}

}  // namespace

std::string describe_grid(const parallel::Topology& topology, const parallel::Grid& grid) {
  const auto count = [](auto n, const char* word) { return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s"); };
  std::string text = fmt::format("{} on {}, {}", count(topology.ranks.size(), "rank"),
                                 count(topology.num_nodes, "node"), count(grid.dp, "replica"));
  if (grid.pp > 1) text += fmt::format(" of {}", count(grid.pp, "stage"));
  if (grid.tp > 1) text += fmt::format(" of {}", count(grid.tp, "rank"));
  return text;
}

std::string describe_numbers(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return parallel::describe_runs(numbers, ", ");
}

std::string describe_layers(const Range& layers) {
  if (layers.size() == 1) return fmt::format("layer {}", layers.begin);
  return fmt::format("layers {}-{}", layers.begin, layers.end - 1);
}

std::vector<std::string> describe_map(const parallel::Topology& topology, const parallel::Grid& grid,
                                      const std::vector<Range>& stages, const RankDevices& devices, size_t max_lines) {
  std::vector<Line> lines = all_lines(topology, grid, devices);
  lines = fold(lines, {kNode, kReplica, kStage});               // the ranks of a stage
  lines = fold(lines, {kNode, kStage, kPart});                  // replicas on a node
  lines = fold(lines, {kLocal, kStage, kPart, kDomain, kCpu});  // nodes
  std::vector<std::string> out;
  for (const Line& line : lines) {
    if (out.size() == max_lines) {
      out.push_back(fmt::format("and {} more line{}", lines.size() - max_lines, lines.size() - max_lines == 1 ? "" : "s"));
      break;
    }
    const std::vector<int> ranks = line.each_value(kRank);
    out.push_back(fmt::format(
        "{}: {}{}, {}, {}, {}{}; dp {}, pp {}, tp {}: {}", plural("rank", ranks), plural("node", line.values(kNode)),
        describe_hosts(topology, ranks), plural("local rank", line.values(kLocal)),
        describe_sets("NUMA domain", line.place->cpu_place.numa_domains, line.values(kDomain)),
        describe_sets("CPU", line.place->cpus.cpus(), line.values(kCpu)), line.rest.substr(0, line.rest.find('|')),
        describe_some(line.values(kReplica)), line.first[kStage], describe_some(line.values(kPart)),
        describe_layers(stages.at(static_cast<size_t>(line.first[kStage])))));
  }
  return out;
}

}  // namespace tokenmill::app
