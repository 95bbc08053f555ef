#include "jobs/merge_jobs.h"

#include <filesystem>
#include <set>

#include "jobs/journal/done_rows.h"
#include "jobs/journal/owner.h"
#include "jobs/merge.h"
#include "jobs/old_results.h"
#include "jobs/output_dir.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;

void check_apart(const std::vector<std::string>& directories, const std::vector<std::string>& output_paths) {
  std::set<fs::path> seen;
  for (const std::string& path : directories) {
    std::error_code error;
    if (!seen.insert(fs::weakly_canonical(path, error)).second)
      throw Error(ErrorKind::kConfig, "{} is given twice; its rows would be there twice", path);
    for (const std::string& output_path : output_paths)
      if (lies_in(path, "journal", output_path))
        throw Error(ErrorKind::kConfig, "--output {} lies in the journal of {}; name another file", output_path, path);
  }
}

JobsMerged::Job merge_one(const OutputDir& directory, const MergeOutputs& outputs, bool partial) {
  const std::optional<Owner> owner = Owner::read(directory.journal());
  if (!owner || owner->rows.size() < 0)
    throw Error(ErrorKind::kConfig, "{}: no run has come to its rows yet; there is nothing to merge", directory.path());
  const std::vector<PartPaths> parts = list_parts(directory);
  const int64_t done = read_done_rows(parts, owner->rows.end).done.count();
  if (!partial && done < owner->rows.size())
    throw Error(ErrorKind::kConfig,
                "{} has results of {} of {} rows; continue the job by its command, or give --partial to merge what is "
                "there",
                directory.path(), done, owner->rows.size());
  const MergeTotals totals = append_parts(parts, owner->rows, outputs, {.allow_missing = partial});
  return {.rows = totals.rows, .rows_total = owner->rows.size(), .failed = totals.failed};
}

}  // namespace

void check_mergeable(const OutputDir& directory) {
  std::error_code error;
  if (!fs::exists(directory.path(), error))
    throw Error(ErrorKind::kConfig, "{}: no such directory; merge takes the output directories of runs",
                directory.path());
  if (!fs::exists(directory.journal(), error))
    throw Error(ErrorKind::kConfig, "{} holds no journal; merge takes the output directories of runs",
                directory.path());
  if (const std::string problem = journal_problem(directory); !problem.empty())
    throw Error(ErrorKind::kConfig, "{} cannot be merged: it holds results {}", directory.path(), problem);
}

JobsMerged merge_jobs(const std::vector<std::string>& directories, const std::vector<std::string>& output_paths,
                      const std::function<MergeOutputs()>& outputs, bool partial) {
  check_apart(directories, output_paths);
  for (const std::string& path : directories) check_mergeable(OutputDir(path));
  JobsMerged merged;
  const MergeOutputs made = outputs();
  for (const std::string& path : directories) {
    merged.jobs.push_back(merge_one(OutputDir(path), made, partial));
    merged.rows += merged.jobs.back().rows;
  }
  for (const auto& output : made) output->commit();
  return merged;
}

}  // namespace tokenmill::jobs
