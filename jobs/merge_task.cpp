#include "jobs/merge_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "jobs/row_merge.h"

namespace tokenmill::jobs {

MergeTask share_task(MergeTask task, const parallel::Comm& comm) {
  parallel::run_on_root(comm, [&] {
    task.blocks = LedgerBlocks(task.parts);
    check_rows(task.blocks, task.rows);
  });
  std::string names = fmt::format("{}\n{}\n{}\n", task.rows.begin, task.rows.end, task.path);
  for (const PartPaths& part : task.parts) names += fmt::format("{}\n{}\n{}\n", part.run, part.part, part.ledger);
  std::string blocks = task.blocks.serialize();
  parallel::broadcast_bytes(comm, names, 0);
  parallel::broadcast_bytes(comm, blocks, 0);
  if (comm.rank() == 0) return task;
  std::istringstream in(names);
  std::string line;
  std::getline(in, line);
  task.rows.begin = std::stoll(line);
  std::getline(in, line);
  task.rows.end = std::stoll(line);
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

RowRange share_of_rows(RowRange rows, int64_t count, int64_t index) {
  const int64_t each = rows.size() / count, larger = rows.size() % count;  // the first ones have a row more
  const int64_t begin = rows.begin + each * index + std::min(index, larger);
  return {begin, begin + each + (index < larger ? 1 : 0)};
}

}  // namespace tokenmill::jobs
