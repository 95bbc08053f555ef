#pragma once
#include <nccl.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "kernels/emulation/nccl/meeting.h"
#include "kernels/emulation/runtime.h"

namespace tokenmill::emulation {

/// One rank's end of an emulated communicator; work of streams shares it.
struct Communicator {
  std::shared_ptr<Meeting> meeting;
  int device = 0;
  int num_splits = 0;
  std::atomic<ncclResult_t> async_error{ncclSuccess};
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

/// 0 for a type that is not emulated.
size_t num_bytes_of(ncclDataType_t type);

struct Collective {
  enum class Kind { kAllReduce, kAllGather, kReduceScatter, kBroadcast };
  Kind kind;
  const void* send;
  void* receive;
  size_t count;  // as the caller gives it: of AllGather and ReduceScatter one rank's share
  ncclDataType_t type;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;
};

/// Runs it; all ranks must call with the same arguments, else the stream fails. Sums go in rank order, those of 16-bit
/// types in f32 with one rounding. When another rank aborts or dies it ends early with the communicator's async error.
Status run_collective(Communicator& communicator, const Collective& collective);

struct Transfer {
  bool is_send;
  void* data;
  size_t num_bytes;
  int peer;
};

/// Runs sends and receives together: those of one peer and direction in order, all others as they can.
Status run_transfers(Communicator& communicator, std::vector<Transfer> transfers);

/// Keeps text for ncclGetLastError of this thread.
ncclResult_t fail_nccl(ncclResult_t result, const std::string& text);

}  // namespace tokenmill::emulation
