#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "jobs/index.h"

namespace tokenmill::jobs {

/// One of the equal stretches of a job's rows that runs of their own compute (jobs/README.md, "Shards").
struct Shard {
  int64_t index = 0, count = 1;

  bool is_all() const { return count == 1; }
  RowRange rows_of(int64_t num_rows) const;
  /// The output directory of this shard's runs; output itself where the shard is all.
  std::string directory(const std::string& output) const;
};

/// Refuses a run of that shard, or of all rows, where output holds what merge would not put together with it: shards of
/// another count, a whole job's journal. Throws Error(kConfig) naming them.
void check_division(Shard shard, const std::string& output);

/// Of all shards whose runs have that output, in order, whether they are there yet or not; none where it holds no
/// shard. Throws Error(kConfig) where it holds shards of different counts.
std::vector<std::string> shard_directories(const std::string& output);

}  // namespace tokenmill::jobs
