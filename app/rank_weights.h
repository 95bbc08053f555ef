#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "engine/models/loader.h"
#include "engine/models/weight_cache.h"
#include "engine/models/weights.h"
#include "kernels/ops.h"
#include "parallel/groups.h"
#include "parallel/shared_memory.h"

namespace tokenmill::app {

/// Collective over groups.numa: the ranks with the same memory domains that hold the same part of the model in the same
/// layout, this one among them; never ranks of two nodes. On a CPU they have one copy of the weights between them, near
/// to all of them alike; on other devices, and where memory cannot be shared (a warning says why), each rank is alone.
parallel::Comm weight_sharers(const parallel::Groups& groups, const Ops& ops);

/// Collective over world: what the bytes of this rank's packed weights depend on, for WeightCache. The first rank of
/// each node looks at the checkpoint's files. cpu: the model of this rank's CPU. Throws the same Error on every rank.
std::string weight_identity(const WeightBuilder& builder, const WeightCatalog& weights, const Ops& ops,
                            const std::string& cpu, const parallel::Comm& node, const parallel::Comm& world);

/// How weights come into memory; the same on all ranks, but for the identity.
struct WeightLoadOptions {
  LoadMode mode = LoadMode::kNode;
  LoadFormat format = LoadFormat::kAuto;
  std::string cache;     ///< directory of a WeightCache; empty: none
  std::string identity;  ///< weight_identity(); with a cache
  std::function<void()> on_progress = {};  ///< LoadOptions
};

/// The memory behind a rank's weights: its own, or one that it shares.
class RankWeights {
 public:
  /// Of the cache, by this rank.
  struct CacheStats {
    int64_t bytes_read = 0, bytes_written = 0;
    double seconds = 0;
  };

  /// Collective over world. sharers: weight_sharers(). Takes the memory; the first of the sharers fills it from the
  /// cache, or else from the checkpoint, and then keeps it in the cache; the others take the finished bytes over and
  /// read nothing. Throws the same Error on every rank, but for load_weights()'s Error(kMpi).
  void load(WeightBuilder& builder, Ops& ops, const parallel::Comm& sharers, const parallel::Groups& groups,
            const parallel::Comm& world, const WeightLoadOptions& options);
  const LoadStats& stats() const { return stats_; }
  const CacheStats& cache_stats() const { return cache_stats_; }

 private:
  std::span<std::byte> allocate(Ops& ops, const parallel::Comm& sharers, int64_t num_bytes);
  bool load_kept(const WeightLoadOptions& options, std::span<std::byte> storage);
  void keep(const WeightLoadOptions& options, std::span<const std::byte> storage);

  Buffer own_;
  parallel::SharedMemory shared_;
  LoadStats stats_;
  CacheStats cache_stats_;
};

}  // namespace tokenmill::app
