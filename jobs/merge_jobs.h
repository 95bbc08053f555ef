#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "jobs/merge.h"

namespace tokenmill::jobs {

class OutputDir;

struct JobsMerged {
  struct Job {
    int64_t rows = 0;        ///< with a result
    int64_t rows_total = 0;  ///< of the job
    int64_t failed = 0;      ///< of rows
  };
  std::vector<Job> jobs;  ///< by directory
  int64_t rows = 0;       ///< of all
};

/// Throws Error(kConfig) where a directory is missing or has no journal, or one that this version cannot read.
void check_mergeable(const OutputDir& directory);

/// Writes the results in the journals of jobs' output directories to outputs, directory after directory, each in row
/// order; the jobs may be stopped, or still running (then what they had committed when it began). Their files are
/// only read. output_paths: what outputs() writes; it is called when the directories have been checked, and told
/// whether rows have no result yet. partial: these are left out; else one is an Error(kConfig) that names the
/// directory. Throws Error(kConfig) for a directory without a journal, or given twice, Error(kIo) for damage. Atomic
/// as merge_parts().
JobsMerged merge_jobs(const std::vector<std::string>& directories, const std::vector<std::string>& output_paths,
                      const std::function<MergeOutputs(bool some_missing)>& outputs, bool partial);

}  // namespace tokenmill::jobs
