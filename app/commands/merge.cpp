#include <fmt/format.h>
#include <fmt/ostream.h>

#include <filesystem>

#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/progress_view.h"
#include "jobs/merge_jobs.h"
#include "kernels/core/error.h"

namespace tokenmill::app {

int merge_outputs(const RunOptions& options, std::ostream& out) {
  if (options.merge.directories.empty() || options.output.empty())
    throw Error(ErrorKind::kConfig,
                "merge needs output directories of runs and a file: tokenmill merge DIR... --output FILE");
  if (std::filesystem::is_directory(options.output))
    throw Error(ErrorKind::kConfig, "--output {} is a directory; name a file, e.g. {}/output.jsonl", options.output,
                options.output);
  const jobs::JobsMerged merged = jobs::merge_jobs(options.merge.directories, options.output, options.merge.partial);
  for (size_t i = 0; i < merged.jobs.size(); ++i) {
    const auto& job = merged.jobs[i];
    fmt::print(out, "{}: {} of {} rows, {} with errors\n", options.merge.directories[i], format_count(job.rows),
               format_count(job.rows_total), format_count(job.failed));
  }
  fmt::print(out, "{}: {} rows\n", options.output, format_count(merged.rows));
  out.flush();
  return kExitDone;
}

}  // namespace tokenmill::app
