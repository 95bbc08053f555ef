#pragma once
#include <istream>
#include <ostream>

#include "app/options.h"
#include "jobs/stop_signals.h"
#include "parallel/mpi.h"

/// One function per command; each returns the process's exit code (exit_codes.h) and throws Error.
namespace tokenmill::app {

/// Collective: every rank calls it with the same options and gets the same code. A stop signal ends it: at once before
/// the first row, else with everything saved.
int run_job(RunOptions options, parallel::MpiSession& session, jobs::StopSignals& signals);
/// Collective: random prompts through an engine per rank; prints the figures on rank 0.
int bench_throughput(RunOptions options, parallel::MpiSession& session);

/// Everything of a job up to its first step, without MPI: options, model, layout on the cluster of options.validate,
/// memory, every row. Prints what would be done where and the first rows with errors. Writes nothing. Returns
/// kExitRowErrors when more rows have errors than --max-row-errors allows, else kExitDone; throws what the job would.
int validate_job(RunOptions options, std::ostream& out);
/// One JSON value a line in, one JSON object a line out. Returns kExitRowErrors when
/// a line failed (its output says why), else kExitDone.
int tokenize(RunOptions options, std::istream& in, std::ostream& out);
/// Prints what a model is.
int inspect(RunOptions options, std::ostream& out);
/// Compares two outputs (options.diff) row by row; prints differences and a summary. Returns kExitDone when they are
/// equal, kExitDifferent when not; an output that cannot be read throws Error of a kind that exits with kExitUsage.
int diff_outputs(const RunOptions& options, std::ostream& out);
/// Merges what the journals of options.merge.directories hold into the file options.output; prints how many rows of each.
int merge_outputs(const RunOptions& options, std::ostream& out);
/// Prints the time of each operation beside the limits measured on this machine.
int bench_kernels(RunOptions options, std::ostream& out);

}  // namespace tokenmill::app
