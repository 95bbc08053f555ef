#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "engine/models/chunk_ring.h"
#include "engine/models/chunk_route.h"
#include "parallel/byte_transfer.h"
#include "parallel/mpi.h"

namespace tokenmill {

/// A node's part in passing chunks between nodes: fills ring slots with what other nodes have read, and sends on what
/// is in the slots, both while other chunks are under way. Runs on one thread of one rank per node.
///
/// A node whose ring is stopped goes on taking part, with empty messages: a node that receives one stops too. So no
/// message is left over, nobody waits for one that never comes, and a failure on any node reaches those behind it.
class ChunkRelay {
 public:
  /// routes: of the chunks of this node's ring, in order, their lengths more than 0; `nodes` has one rank per node, by
  /// node number. consumer: the relay's number among the ring's consumers. All outlive it.
  ChunkRelay(const std::vector<ChunkRoute>& routes, const ChunkRing& ring, int consumer, const parallel::Comm& nodes)
      : routes_(routes), ring_(ring), consumer_(consumer), nodes_(nodes) {}
  /// Returns when every chunk has come and gone, or been replaced by an empty message.
  void run();

 private:
  struct Pending {
    size_t chunk;
    parallel::ByteTransfer transfer;
  };
  // Each returns whether it could do anything.
  bool start_receives();
  bool end_receives();
  bool start_sends();
  bool end_sends();
  parallel::ByteTransfer receive(size_t chunk, std::span<std::byte> bytes) const;
  parallel::ByteTransfer send(size_t chunk, std::span<const std::byte> bytes) const;
  void drain();

  const std::vector<ChunkRoute>& routes_;
  const ChunkRing& ring_;
  int consumer_;
  const parallel::Comm& nodes_;
  size_t next_receive_ = 0, next_send_ = 0;  // chunks that are looked at next
  std::deque<Pending> receives_, sends_;
};

}  // namespace tokenmill
