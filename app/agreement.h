#pragma once
#include <string>
#include <utility>
#include <vector>

#include "app/model_choice.h"
#include "app/options.h"
#include "parallel/mpi.h"

namespace tokenmill::app {

/// (name, value) of everything that decides what a row's result is, apart from the row.
using JobFacts = std::vector<std::pair<std::string, std::string>>;

/// Options in force, numerics, and digests of the model's files (io::file_digest(); of weights with
/// all that stands before the first tensor) and of --chat-template. Paths are left out: node-local copies may lie anywhere. Of the layout only what changes bits:
/// replicas and pipeline stages do not, nor does the tensor-parallel size under --tp-invariant.
JobFacts job_facts(const RunOptions& options, const ModelChoice& choice, const std::string& numerics);

/// Those that must not change while a job is continued: rows come out alike whatever runs beside them, so batch sizes and
/// the like may.
JobFacts identity_facts(const JobFacts& facts);

/// True when options.output holds a job that a run with these facts continues. Throws Error(kConfig) as the job itself
/// would, for results that it can neither continue nor replace.
bool check_results(const RunOptions& options, const JobFacts& facts);

/// Collective. Throws the same Error(kConfig) on every rank, naming the first rank and fact that differ from rank 0's: a
/// stale copy of a model or another flag on one node must not be mixed into the results.
void agree_on_facts(const JobFacts& facts, const parallel::Comm& world);

}  // namespace tokenmill::app
