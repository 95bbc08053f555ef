#pragma once
#include <string>
#include <utility>
#include <vector>

namespace tokenmill::rows {

/// One file of those that ResultTables wrote for consecutive stretches of a job's rows, of which it shows the columns; what
/// counts entries (first_sample, row, offsets, *_nul) is its own, since it counts over all. Complete or absent, as theirs.
/// parts: relative to path's directory, in order of their rows. Throws Error(kIo).
void join_tables(const std::string& path, const std::vector<std::string>& parts,
                 const std::vector<std::pair<std::string, std::string>>& attributes);

}  // namespace tokenmill::rows
