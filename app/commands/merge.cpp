#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/merge_output.h"
#include "app/output_files.h"
#include "app/progress_view.h"
#include "jobs/journal/identity.h"
#include "jobs/merge_jobs.h"
#include "jobs/output_dir.h"
#include "jobs/shard.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

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

/// "2 of 8 shards have not begun: 6, 7"; empty: all have.
std::string missing_shards(const std::vector<std::string>& shards) {
  constexpr size_t kMostNamed = 16;
  std::vector<size_t> missing;
  for (size_t i = 0; i < shards.size(); ++i)
    if (!has_journal(shards[i])) missing.push_back(i);
  if (missing.empty()) return "";
  const size_t num_missing = missing.size();
  missing.resize(std::min(num_missing, kMostNamed));
  return fmt::format("{} of {} shards {} not begun: {}{}", num_missing, shards.size(),
                     num_missing == 1 ? "has" : "have", fmt::join(missing, ", "),
                     num_missing > kMostNamed ? fmt::format(" and {} more", num_missing - kMostNamed) : "");
}

/// What one of the given directories stands for.
struct Found {
  std::vector<std::string> directories;  ///< itself, or those of the shards in it that have begun
  bool shards_missing = false;           ///< not all have, with partial only
};

Found with_shards(const std::string& directory, bool partial) {
  std::vector<std::string> shards = jobs::shard_directories(directory);
  if (shards.empty()) return {{directory}};
  if (has_journal(directory))
    throw Error(ErrorKind::kConfig,
                "{} holds a job's journal and shards; merge one or the other by their directories ({}, ...)", directory,
                shards[0]);
  const std::string missing = missing_shards(shards);
  if (!missing.empty() && !partial)
    throw Error(ErrorKind::kConfig, "{}: {}; run what is missing, or give --partial to merge what is there", directory,
                missing);
  std::erase_if(shards, [](const std::string& shard) { return !has_journal(shard); });
  if (shards.empty()) throw Error(ErrorKind::kConfig, "{}: {}; there is nothing to merge", directory, missing);
  if (!missing.empty()) log::warning("{}: {}", directory, missing);
  check_alike(shards);
  return {std::move(shards), !missing.empty()};
}

/// What all of the directories' jobs write, or what was asked for.
OutputFiles files_of(const std::vector<std::string>& directories, const RunOptions& options) {
  OutputFiles files;
  for (size_t i = 0; i < directories.size(); ++i) {
    const OutputFiles more = OutputFiles::read(directories[i]);
    if (i == 0)
      files = more;
    else if (!files.add(more))
      throw Error(ErrorKind::kConfig, "hidden states of {} have {} numbers, those of {} {}; merge jobs of one model",
                  directories[0], files.hidden_columns, directories[i], more.hidden_columns);
  }
  if (options.merge.has_formats) {
    files.lines = options.output_jsonl;
    files.tables = options.output_hdf5;
  }
  return files;
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
  bool shards_missing = false;
  for (const std::string& given : options.merge.directories) {
    const Found found = with_shards(given, options.merge.partial);
    directories.insert(directories.end(), found.directories.begin(), found.directories.end());
    shards_missing = shards_missing || found.shards_missing;
  }
  for (const std::string& directory : directories) jobs::check_mergeable(jobs::OutputDir(directory));
  const OutputFiles files = files_of(directories, options);
  const MergePaths paths = merge_paths(options.output, files.lines, files.tables);
  std::vector<std::string> written;
  for (const std::string& path : {paths.tables, paths.lines})
    if (!path.empty()) written.push_back(path);
  for (const std::string& path : written) check_merge_output(directories, path);
  const auto outputs = [&](bool rows_missing) {
    jobs::MergeOutputs made;
    if (files.tables) made.push_back(files.make_tables(paths.tables, shards_missing || rows_missing));
    if (files.lines) made.push_back(std::make_unique<io::LineWriter>(paths.lines));
    return made;
  };
  const jobs::JobsMerged merged = jobs::merge_jobs(directories, written, outputs, options.merge.partial);
  for (size_t i = 0; i < merged.jobs.size(); ++i) {
    const auto& job = merged.jobs[i];
    fmt::print(out, "{}: {} of {} rows, {} with errors\n", directories[i], format_count(job.rows),
               format_count(job.rows_total), format_count(job.failed));
  }
  fmt::print(out, "{}: {} rows\n", fmt::join(written, ", "), format_count(merged.rows));
  out.flush();
  return kExitDone;
}

}  // namespace tokenmill::app
