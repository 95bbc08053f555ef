#include "jobs/row_verdict.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

namespace tokenmill::jobs {

RowVerdict judge_rows(const std::map<int64_t, Deaths>& deaths, const RowSet& done, const RowSet& tried_again) {
  constexpr int64_t kMaxDeaths = 2;
  RowVerdict verdict;
  for (const auto& [row, of_row] : deaths) {
    if (row < 0 || row >= done.num_rows() || done.contains(row)) continue;
    if (of_row.count < kMaxDeaths || tried_again.contains(row))
      verdict.suspects.push_back(row);
    else
      verdict.refused.emplace(row, fmt::format("the process that computed this row died {} times, the last time of: {}; "
                                               "--retry-errors tries it again",
                                               of_row.count, of_row.cause));
  }
  return verdict;
}

std::string describe_suspects(const std::vector<int64_t>& suspects) {
  constexpr std::ptrdiff_t kMostListed = 8;
  const auto end = suspects.begin() + std::min(std::ssize(suspects), kMostListed);
  return fmt::format("{} rows were being computed when a process died ({}{}); they run last, one by one", suspects.size(),
                     fmt::join(suspects.begin(), end, ", "), end == suspects.end() ? "" : ", ...");
}

/// A line for each row.
std::string serialize(const RefusedRows& refused) {
  std::string text;
  for (const auto& [row, reason] : refused) text += fmt::format("{} {}\n", row, reason);
  return text;
}

RefusedRows deserialize_refused(std::string_view text) {
  RefusedRows refused;
  while (!text.empty()) {
    const size_t space = text.find(' '), end = text.find('\n');
    refused.emplace(std::stoll(std::string(text.substr(0, space))), text.substr(space + 1, end - space - 1));
    text.remove_prefix(end + 1);
  }
  return refused;
}

}  // namespace tokenmill::jobs
