#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tokenmill::jobs {

struct JobsMerged {
  struct Job {
    int64_t rows = 0;        ///< with a result
    int64_t rows_total = 0;  ///< of the job
    int64_t failed = 0;      ///< of rows
  };
  std::vector<Job> jobs;  ///< by directory
  int64_t rows = 0;       ///< of all
};

/// Writes the results in the journals of jobs' output directories to one file, directory after directory, each in row
/// order; the jobs may be stopped, or still running (then what they had committed when it began). Their files are only
/// read. partial: rows without a result are left out; else one is an Error(kConfig) that names the directory. Throws
/// Error(kConfig) for a directory without a journal, or given twice, Error(kIo) for damage. Atomic as merge_parts().
JobsMerged merge_jobs(const std::vector<std::string>& directories, const std::string& output_path, bool partial);

}  // namespace tokenmill::jobs
