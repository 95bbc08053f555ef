#include "jobs/merge_in_parts.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "io/file.h"
#include "jobs/journal/advice.h"
#include "jobs/merge_task.h"
#include "jobs/row_merge.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;

std::string stem_of(const std::string& directory, int rank) { return fmt::format("{}/{:05d}", directory, rank); }

void make_new(const std::string& directory) {
  std::error_code error;
  if (!fs::create_directory(directory, error))
    throw Error(ErrorKind::kIo, "{} cannot be made: {}", directory, error ? error.message() : "it is there already");
  io::sync_directory(fs::path(directory).parent_path().string());
}

}  // namespace

MergeTotals merge_in_parts(const std::vector<PartPaths>& parts, RowRange all, const std::string& directory,
                           const parallel::Comm& comm, const PartOutputs& outputs, const MergeOptions& options) {
  parallel::run_on_root(comm, [&] { with_advice([&] { make_new(directory); }); });
  const MergeTask task = share_task({.parts = parts, .rows = all, .path = directory}, comm);
  MergeTotals mine, sum;
  parallel::agree_on(comm, [&] {
    const RowRange rows = share_of_rows(task.rows, comm.size(), comm.rank());
    const MergeOutputs made = with_advice([&] { return outputs.make(stem_of(task.path, comm.rank())); });
    RowMerge merge(task.parts, task.blocks, made, options);
    merge.copy(rows.begin, rows.end);
    with_advice([&] {
      for (const auto& output : made) output->commit();
    });
    mine = merge.totals();
  });
  for (const MergeTotals& of_rank : parallel::gather_values(comm, mine)) sum.add(of_rank);
  parallel::run_on_root(comm, [&] {
    std::vector<std::string> stems;
    for (int rank = 0; rank < comm.size(); ++rank) stems.push_back(stem_of(directory, rank));
    with_advice([&] { outputs.join(stems); });
  });
  return sum;
}

}  // namespace tokenmill::jobs
