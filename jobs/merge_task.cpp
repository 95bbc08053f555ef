#include "jobs/merge_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "jobs/row_merge.h"

namespace tokenmill::jobs {

MergeTask share_task(MergeTask task, const parallel::Comm& comm) {
  parallel::run_on_root(comm, [&] {
    task.blocks = LedgerBlocks(task.parts);
    check_rows(task.blocks, task.num_rows);
  });
  std::string names = fmt::format("{}\n{}\n", task.num_rows, task.path);
  for (const PartPaths& part : task.parts) names += fmt::format("{}\n{}\n{}\n", part.run, part.part, part.ledger);
  std::string blocks = task.blocks.serialize();
  parallel::broadcast_bytes(comm, names, 0);
  parallel::broadcast_bytes(comm, blocks, 0);
  if (comm.rank() == 0) return task;
  std::istringstream in(names);
  std::string line;
  std::getline(in, line);
  task.num_rows = std::stoll(line);
  std::getline(in, task.path);
  task.parts.clear();
  while (std::getline(in, line)) {
    PartPaths& part = task.parts.emplace_back();
    part.run = std::stoll(line);
    std::getline(in, part.part);
    std::getline(in, part.ledger);
  }
  task.blocks = LedgerBlocks::deserialize(blocks);
  return task;
}

RowRange share_of_rows(int64_t num_rows, int count, int index) {
  const int64_t begin = num_rows / count * index + std::min<int64_t>(index, num_rows % count);
  return {begin, begin + num_rows / count + (index < num_rows % count ? 1 : 0)};
}

}  // namespace tokenmill::jobs
