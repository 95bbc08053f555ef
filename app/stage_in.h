#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "app/options.h"
#include "app/ranks.h"
#include "parallel/mpi.h"

namespace tokenmill::app {

/// What staging a model took.
struct StagedModel {
  std::string path;  ///< the copy: a directory, or a .gguf file
  int64_t bytes_copied = 0, bytes_kept = 0;
};

/// Copies a model's files (a checkpoint directory's .json, .jinja and .safetensors, or one .gguf) to
/// stage_dir/NAME-HASH, the hash made of the files' names and digests. A copy that is there is kept when all its bytes
/// have the checksum that was written when they were copied, and its source has the digest of then; else it is copied
/// again. Files get their names when they are complete and synced. Throws Error(kIo) naming --stage-dir when there is no
/// room or a file cannot be copied. on_progress: after every chunk that is read.
StagedModel stage_files(const std::string& model, const std::string& model_name, const std::string& stage_dir,
                        const std::function<void()>& on_progress);

/// Collective over world, with --stage-dir: one rank of each node stages options.model, and options.staged_model names
/// the copy.
void stage_model(RunOptions& options, const Ranks& ranks, const parallel::Comm& world,
                 const std::function<void()>& on_progress);

}  // namespace tokenmill::app
