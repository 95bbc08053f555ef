#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "parallel/host_transport.h"
#include "parallel/mpi.h"
#include "parallel/shared_memory.h"
#include "parallel/shm_lane.h"

namespace tokenmill::parallel {

/// The lanes of one rank: one that all others read (exchange, all_gather, broadcast) and one to each other rank (send).
struct ShmShape {
  LaneShape collective;
  LaneShape pair;
  /// For a group of `size` ranks: 2 MiB and 1 MiB of slots; from 65 ranks on 16 KiB per other rank instead of 1 MiB.
  static ShmShape of_group(int size);
};

/// What a rank of a group of `size` ranks takes of the node's memory (about 3 MiB), all of it once it is used; the
/// group takes `size` times that.
int64_t shm_window_bytes(int size);

/// Host bytes through memory that the ranks of one node share: start() copies into this rank's slots as far as they are
/// free and never waits, the receivers copy out when they wait. Longer parts go slot by slot, so that one rank writes
/// while the others read.
class ShmTransport final : public HostTransport {
 public:
  /// Collective over group, whose ranks share a node. Throws AgreedError(kDevice) where they cannot.
  explicit ShmTransport(const Comm& group) : ShmTransport(group, ShmShape::of_group(group.size())) {}
  ShmTransport(const Comm& group, const ShmShape& shape);

  const char* name() const override { return "shm"; }
  void start(Transfer transfer, const Move& move) override;
  bool progress() override;
  bool finished(Transfer transfer) override;

 private:
  struct Pending {
    Transfer transfer = 0;  ///< 0: free for another move
    Move move;
    int lanes_left = 0;  ///< that still have bytes of it to carry
  };
  struct Job {
    Pending* pending;
    int64_t done_bytes = 0;  ///< of each part
  };
  struct Outgoing {
    LaneWriter writer;
    std::deque<Job> jobs;
  };
  struct Incoming {
    LaneReader reader;
    int from;
    std::deque<Job> jobs;
  };
  int64_t piece_bytes(const Move& move) const;
  bool write_slot(Outgoing& lane);
  bool read_slot(Incoming& lane);

  int rank_, size_;
  ShmShape shape_;
  SharedMemory memory_;
  std::vector<Outgoing> outgoing_;  // [0]: to all; then to each other rank, in order
  std::vector<Incoming> incoming_;  // per other rank, in order: its lane to all, its lane to this rank
  MovesUnderWay<Pending> pending_;
};

}  // namespace tokenmill::parallel
