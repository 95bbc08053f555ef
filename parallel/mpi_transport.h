#pragma once
#include <memory>
#include <vector>

#include "parallel/host_transport.h"
#include "parallel/mpi.h"

namespace tokenmill::parallel {

/// Host bytes by non-blocking MPI messages between each pair of ranks, on a duplicate of a communicator: works between
/// nodes. MPI moves long messages only while someone calls it, so most of their time is in the wait.
class MpiTransport final : public HostTransport {
 public:
  /// Collective over group. A part longer than max_message_bytes (MPI counts are int) travels in several messages.
  explicit MpiTransport(const Comm& group, int64_t max_message_bytes = int64_t{1} << 30);
  /// Moves not finished are cancelled where MPI can; their memory must stay until MPI_Finalize where it cannot.
  ~MpiTransport() override;

  const char* name() const override { return "mpi"; }
  void start(Transfer transfer, const Move& move) override;
  bool progress() override;
  bool finished(Transfer transfer) override;

 private:
  struct Pending {
    Transfer transfer = 0;  ///< 0: free for another move
    std::vector<MPI_Request> requests;
    std::vector<int> expected_bytes;  ///< by request; -1 for a send
    std::vector<int> peers;
    bool done = false;
  };
  bool test(Pending& pending);
  Comm comm_;
  int64_t max_message_bytes_;
  MovesUnderWay<Pending> pending_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace tokenmill::parallel
