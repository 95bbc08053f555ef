#include "jobs/merge_jobs.h"

#include <algorithm>
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

/// What there is of a job when the merge begins.
struct JobState {
  std::vector<PartPaths> parts;
  RowRange rows;
  bool is_whole = false;  ///< every row has a result; rows that get one later are no harm
};

JobState state_of(const OutputDir& directory, bool partial) {
  const std::optional<Owner> owner = Owner::read(directory.journal());
  if (!owner || owner->rows.size() < 0)
    throw Error(ErrorKind::kConfig, "{}: no run has come to its rows yet; there is nothing to merge", directory.path());
  JobState state{.parts = list_parts(directory), .rows = owner->rows};
  const int64_t done = read_done_rows(state.parts, owner->rows.end).done.count();
  state.is_whole = done >= owner->rows.size();
  if (!partial && !state.is_whole)
    throw Error(ErrorKind::kConfig,
                "{} has results of {} of {} rows; continue the job by its command, or give --partial to merge what is "
                "there",
                directory.path(), done, owner->rows.size());
  return state;
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
                      const std::function<MergeOutputs(bool some_missing)>& outputs, bool partial) {
  check_apart(directories, output_paths);
  for (const std::string& path : directories) check_mergeable(OutputDir(path));
  std::vector<JobState> states;
  for (const std::string& path : directories) states.push_back(state_of(OutputDir(path), partial));
  const MergeOutputs made =
      outputs(std::any_of(states.begin(), states.end(), [](const JobState& state) { return !state.is_whole; }));
  JobsMerged merged;
  for (const JobState& state : states) {
    const MergeTotals totals = append_parts(state.parts, state.rows, made, {.allow_missing = partial});
    merged.jobs.push_back({.rows = totals.rows, .rows_total = state.rows.size(), .failed = totals.failed});
    merged.rows += totals.rows;
  }
  for (const auto& output : made) output->commit();
  return merged;
}

}  // namespace tokenmill::jobs
