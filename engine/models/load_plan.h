#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/models/weights.h"
#include "io/range_reader.h"

namespace tokenmill {

/// Bytes [begin, end) of one tensor that somebody wants, in whole units.
struct TensorNeed {
  std::string file;                   ///< path
  std::string name;                   ///< the tensor's, in that file: for messages
  int64_t offset = 0, num_bytes = 0;  ///< of the tensor in the file
  int64_t unit_bytes = 1;
  int64_t begin = 0, end = 0;
  bool operator==(const TensorNeed&) const = default;
};

/// What a plan's entries want, one need each.
std::vector<TensorNeed> needs_of(const WeightPlan& plan);

/// The union of needs: sorted by (file, offset, begin), disjoint. The unit of a tensor is the least common multiple of
/// its needs' units; a need that starts or ends inside such a unit grows to hold it whole.
std::vector<TensorNeed> merge_needs(std::span<const TensorNeed> needs);

/// Between ranks. from_bytes throws Error(kInternal) when the bytes are damaged.
std::string to_bytes(std::span<const TensorNeed> needs);
std::vector<TensorNeed> needs_from_bytes(const std::string& bytes);

/// Needs as reads. Ranks with the same needs have the same plan, so that one may read for all.
struct LoadPlan {
  std::vector<TensorNeed> needs;   ///< merged; a piece's range_index is an index into it
  std::vector<std::string> files;  ///< in the order they are read
  io::ReadPlan reads;
};

/// needs: as merge_needs gives them.
LoadPlan make_load_plan(std::vector<TensorNeed> needs, const io::ReadPlanOptions& options);

/// Hands the chunks of a LoadPlan to the sinks of one rank's WeightPlan.
class SinkFeed {
 public:
  /// The load plan's needs must cover the weight plan's. Both outlive it.
  SinkFeed(const WeightPlan& plan, const LoadPlan& load);

  /// Whether any of the chunk's bytes go to a sink of this rank.
  bool wants(size_t chunk_index) const;
  /// Chunks in ascending order; those that it does not want may be left out. A sink is finished after its last byte.
  /// What a sink throws is thrown on with file and tensor named.
  void feed(size_t chunk_index, std::span<const std::byte> bytes);
  /// Finishes the sinks that nothing had to be written to. After the last chunk. Throws Error(kInternal) when bytes are
  /// missing.
  void finish();

 private:
  void give(const TensorNeed& need, const WeightPlan::Entry& target, int64_t offset, std::span<const std::byte> bytes);

  const LoadPlan& load_;
  std::vector<std::vector<const WeightPlan::Entry*>> targets_;  // by need
  struct Progress {
    int64_t bytes = 0, left = 0;
  };
  std::map<WeightSink*, Progress> progress_;
};

}  // namespace tokenmill
