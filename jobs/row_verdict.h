#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/journal/running_rows.h"
#include "jobs/row_set.h"

namespace tokenmill::jobs {

/// Rows that are not to be computed, and why; each reason is one line.
using RefusedRows = std::map<int64_t, std::string>;

/// What is done with rows that were being computed when a process died of its own fault (jobs/README.md, "Suspects").
struct RowVerdict {
  std::vector<int64_t> suspects;  ///< computed alone, after all others; ascending
  RefusedRows refused;            ///< error rows, uncomputed
};

/// Of the rows that are not done; tried_again: those whose result is an error that --retry-errors does not count.
RowVerdict judge_rows(const std::map<int64_t, Deaths>& deaths, const RowSet& done, const RowSet& tried_again);

/// "3 rows were being computed when a process died (4, 7, 9); ...": the first of them, for people.
std::string describe_suspects(const std::vector<int64_t>& suspects);

/// For messages between ranks.
std::string serialize(const RefusedRows& refused);
RefusedRows deserialize_refused(std::string_view text);

}  // namespace tokenmill::jobs
