#pragma once
#include <cstdint>

#include "engine/models/loader.h"
#include "engine/models/weights.h"
#include "kernels/ops.h"
#include "parallel/groups.h"
#include "parallel/shared_memory.h"

namespace tokenmill::app {

/// Collective over groups.numa: the ranks of a memory domain that hold the same part of the model in the same layout,
/// this one among them. On a CPU they have one copy of the weights between them; on other devices each rank is alone.
parallel::Comm weight_sharers(const parallel::Groups& groups, const Ops& ops);

/// The memory behind a rank's weights: its own, or one that it shares.
class RankWeights {
 public:
  /// Collective over world. sharers: weight_sharers(). Takes the memory, loads it through the first of the sharers, and
  /// hands the finished bytes to the others, which read nothing. Throws the same Error on every rank, but for
  /// load_weights()'s Error(kMpi).
  void load(WeightBuilder& builder, Ops& ops, const parallel::Comm& sharers, const parallel::Groups& groups,
            const parallel::Comm& world, LoadMode mode);
  const LoadStats& stats() const { return stats_; }

 private:
  Buffer own_;
  parallel::SharedMemory shared_;
  LoadStats stats_;
};

}  // namespace tokenmill::app
