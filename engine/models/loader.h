#pragma once
#include <cstdint>
#include <functional>

#include "engine/models/load_mode.h"
#include "engine/models/weights.h"
#include "io/range_reader.h"
#include "parallel/mpi.h"

namespace tokenmill {

/// The ranks that load together, each its own plan. Both communicators or none: none is this rank alone, without MPI.
/// They outlive the call.
struct LoadGroup {
  const parallel::Comm* job = nullptr;   ///< all of them: when one fails, all fail
  const parallel::Comm* node = nullptr;  ///< those that share memory with this rank
};

struct LoadOptions {
  LoadMode mode = LoadMode::kNode;
  io::ReadPlanOptions reads;
  int num_slots = 4;    ///< chunks that a node holds at once; kBroadcast: at least two per node, up to 32
  std::function<void()> on_progress = {};  ///< this rank has read a chunk or taken one in; any thread. May be empty
  int num_readers = 1;  ///< chunks that a node reads at once, by as many threads, on different ranks where possible
};

/// What loading took.
struct LoadStats {
  int64_t bytes_read = 0;       ///< by this rank, from files
  int64_t node_bytes_read = 0;  ///< by the ranks of this node together
  int64_t job_bytes_read = 0;   ///< by all ranks together
  double read_s = 0;            ///< this rank's readers were reading
  double pack_s = 0;            ///< this rank's sinks took bytes in
  double wait_s = 0;            ///< this rank waited for chunks
};

/// Collective over group.job. Fills the plan's sinks and finishes them. The union of what the ranks of a node want
/// comes once to the node, in ascending offsets by large sequential reads into a ring of chunks that the ranks share;
/// each takes what its sinks want of a chunk while the next ones are read. The plans of the ranks may differ in any
/// way; a rank without entries takes part all the same. options are the same on all ranks.
///
/// Throws the same Error on every rank, naming file and tensor, when a file cannot be read or ends too early, or a sink
/// throws; sinks are then in an unknown state. Throws Error(kMpi) on this rank alone when a rank that it waits for is
/// gone: the job must be aborted.
LoadStats load_weights(const WeightPlan& plan, const LoadGroup& group = {}, const LoadOptions& options = {});

}  // namespace tokenmill
