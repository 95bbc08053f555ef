#include <fmt/format.h>
#include <fmt/ostream.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/progress_view.h"
#include "jobs/journal/identity.h"
#include "jobs/merge_jobs.h"
#include "jobs/output_dir.h"
#include "jobs/shard.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

/// Shards of one job were computed alike, else they are no whole.
void check_alike(const std::vector<std::string>& shards) {
  const auto identity_of = [](const std::string& shard) {
    jobs::Identity::Facts facts = jobs::Identity::read(jobs::OutputDir(shard).identity_path()).facts();
    std::erase_if(facts, [](const auto& fact) { return fact.first == "shard"; });
    return jobs::Identity(std::move(facts));
  };
  for (size_t i = 1; i < shards.size(); ++i)
    if (const std::string difference = identity_of(shards[i]).difference_from(identity_of(shards[0]));
        !difference.empty())
      throw Error(ErrorKind::kConfig,
                  "{} and {} are shards of different jobs: {}; compute one of them again with --restart, or name the "
                  "directories to merge one by one",
                  shards[0], shards[i], difference);
}

bool has_journal(const std::string& directory) { return std::filesystem::exists(jobs::OutputDir(directory).journal()); }

/// The directory, or those of the shards in it; of those that have begun when some rows may be missing.
std::vector<std::string> with_shards(const std::string& directory, bool partial) {
  std::vector<std::string> shards = jobs::shard_directories(directory);
  if (shards.empty()) return {directory};
  if (has_journal(directory))
    throw Error(ErrorKind::kConfig,
                "{} holds a job's journal and shards; merge one or the other by their directories ({}, ...)", directory,
                shards[0]);
  for (const std::string& shard : shards)
    if (!partial && !has_journal(shard))
      throw Error(ErrorKind::kConfig, "{} has not begun; run it, or give --partial to merge what is there", shard);
  std::erase_if(shards, [](const std::string& shard) { return !has_journal(shard); });
  check_alike(shards);
  return shards;
}

}  // namespace

int merge_outputs(const RunOptions& options, std::ostream& out) {
  if (options.merge.directories.empty() || options.output.empty())
    throw Error(ErrorKind::kConfig,
                "merge needs output directories of runs and a file: tokenmill merge DIR... --output FILE");
  if (std::filesystem::is_directory(options.output))
    throw Error(ErrorKind::kConfig, "--output {} is a directory; name a file, e.g. {}/output.jsonl", options.output,
                options.output);
  std::vector<std::string> directories;
  for (const std::string& given : options.merge.directories) {
    const std::vector<std::string> found = with_shards(given, options.merge.partial);
    directories.insert(directories.end(), found.begin(), found.end());
  }
  const jobs::JobsMerged merged = jobs::merge_jobs(directories, options.output, options.merge.partial);
  for (size_t i = 0; i < merged.jobs.size(); ++i) {
    const auto& job = merged.jobs[i];
    fmt::print(out, "{}: {} of {} rows, {} with errors\n", directories[i], format_count(job.rows),
               format_count(job.rows_total), format_count(job.failed));
  }
  fmt::print(out, "{}: {} rows\n", options.output, format_count(merged.rows));
  out.flush();
  return kExitDone;
}

}  // namespace tokenmill::app
