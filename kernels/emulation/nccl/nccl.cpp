// The functions of NCCL that tokenmill calls. Communicators are always blocking: init and split return when all ranks
// have joined. Work is enqueued on the emulated streams, so it can be captured.
#include <fmt/core.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "kernels/emulation/nccl/communicator.h"

struct ncclComm {
  tokenmill::emulation::CommunicatorPtr communicator;
};

namespace tokenmill::emulation {
namespace {

thread_local std::string last_error;

/// A call inside a group, kept until the group ends.
struct Pending {
  CommunicatorPtr communicator;
  cudaStream_t stream;
  std::vector<Transfer> transfers;  // empty: the collective counts
  Collective collective;
};
thread_local int group_depth = 0;
thread_local std::vector<Pending> group;

ncclResult_t enqueue_pending(const Pending& pending) {
  const cudaError_t error = pending.transfers.empty()
                                ? enqueue(pending.stream, "NCCL collective",
                                          [communicator = pending.communicator, collective = pending.collective] {
                                            return run_collective(*communicator, collective);
                                          })
                                : enqueue(pending.stream, "NCCL sends and receives",
                                          [communicator = pending.communicator, transfers = pending.transfers] {
                                            return run_transfers(*communicator, transfers);
                                          });
  return error == cudaSuccess ? ncclSuccess : fail_nccl(ncclUnhandledCudaError, last_failure());
}

ncclResult_t submit(Pending pending) {
  if (group_depth == 0) return enqueue_pending(pending);
  // Sends and receives of a group make progress together: one piece of work for each communicator.
  const auto same = std::find_if(group.begin(), group.end(), [&](const Pending& other) {
    return other.communicator == pending.communicator && !other.transfers.empty() && !pending.transfers.empty();
  });
  if (same == group.end()) {
    group.push_back(std::move(pending));
    return ncclSuccess;
  }
  if (same->stream != pending.stream) {
    return fail_nccl(ncclInvalidUsage, "sends and receives of a group are on one stream for each communicator");
  }
  same->transfers.push_back(pending.transfers.front());
  return ncclSuccess;
}

ncclResult_t submit_collective(ncclComm_t comm, const Collective& collective, cudaStream_t stream) {
  if (comm == nullptr) return fail_nccl(ncclInvalidArgument, "the communicator is null");
  if (num_bytes_of(collective.type) == 0) {
    return fail_nccl(ncclInvalidArgument, fmt::format("type {} is not emulated", static_cast<int>(collective.type)));
  }
  if (collective.reduction < ncclSum || collective.reduction > ncclAvg) {
    return fail_nccl(ncclInvalidArgument, fmt::format("reduction {}", static_cast<int>(collective.reduction)));
  }
  if (collective.root < 0 || collective.root >= comm->communicator->meeting->num_ranks()) {
    return fail_nccl(ncclInvalidArgument, fmt::format("root {} is no rank", collective.root));
  }
  return submit({comm->communicator, stream, {}, collective});
}

ncclResult_t submit_transfer(ncclComm_t comm, bool is_send, void* data, size_t count, ncclDataType_t type, int peer,
                             cudaStream_t stream) {
  if (comm == nullptr) return fail_nccl(ncclInvalidArgument, "the communicator is null");
  const size_t element = num_bytes_of(type);
  if (element == 0) return fail_nccl(ncclInvalidArgument, fmt::format("type {} is not emulated", int{type}));
  if (peer < 0 || peer >= comm->communicator->meeting->num_ranks()) {
    return fail_nccl(ncclInvalidArgument, fmt::format("peer {} is no rank", peer));
  }
  if (count == 0) return ncclSuccess;
  return submit({comm->communicator, stream, {{is_send, data, count * element, peer}}, {}});
}

ncclResult_t join(ncclComm_t* comm, const std::string& name, int num_ranks, int rank) {
  *comm = nullptr;
  std::string text;
  auto meeting = Meeting::join(name, num_ranks, rank, text);
  if (!meeting) return fail_nccl(ncclInvalidUsage, text);
  auto communicator = std::make_shared<Communicator>();
  communicator->meeting = std::move(meeting);
  cudaGetDevice(&communicator->device);
  *comm = new ncclComm{std::move(communicator)};
  return ncclSuccess;
}

}  // namespace

ncclResult_t fail_nccl(ncclResult_t result, const std::string& text) {
  last_error = text;
  return result;
}

}  // namespace tokenmill::emulation

using namespace tokenmill::emulation;  // the definitions below are the C functions of nccl.h

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  *id = {};
  const std::string name = fmt::format("/tokenmill-nccl-{}-{:08x}{:08x}", getpid(), random(), random());
  name.copy(id->internal, sizeof id->internal - 1);
  std::string text;
  return Meeting::create(name, text) ? ncclSuccess : fail_nccl(ncclSystemError, text);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, num_ranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int num_ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  if (num_ranks < 1 || num_ranks > kMaxRanks || rank < 0 || rank >= num_ranks) {
    return fail_nccl(ncclInvalidArgument,
                     fmt::format("rank {} of {}; the emulator takes 1 to {} ranks", rank, num_ranks, kMaxRanks));
  }
  const std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
  if (name.rfind("/tokenmill-nccl-", 0) != 0) {
    return fail_nccl(ncclInvalidArgument, "the unique id is not one of ncclGetUniqueId");
  }
  if (group_depth != 0) return fail_nccl(ncclInvalidUsage, "communicators made inside a group are not emulated");
  return join(comm, name, num_ranks, rank);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* new_comm, ncclConfig_t*) {
  *new_comm = nullptr;
  if (comm == nullptr || color < NCCL_SPLIT_NOCOLOR)
    return fail_nccl(ncclInvalidArgument, fmt::format("color {}", color));
  Communicator& parent = *comm->communicator;
  Meeting& meeting = *parent.meeting;
  Region& region = meeting.region();
  region.colors[meeting.rank()] = color;
  region.keys[meeting.rank()] = key;
  if (!meeting.barrier(region.hosts)) return fail_nccl(ncclRemoteError, "another rank gave up");
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int rank = 0; rank < meeting.num_ranks(); ++rank) {
    if (region.colors[rank] == color) members.emplace_back(region.keys[rank], rank);
  }
  std::sort(members.begin(), members.end());
  const auto own = std::find(members.begin(), members.end(), std::pair(key, meeting.rank()));
  const std::string name = fmt::format("{}-{}.{}", meeting.name(), parent.num_splits++, color);
  std::string text;
  const bool made = color == NCCL_SPLIT_NOCOLOR || own != members.begin() || Meeting::create(name, text);
  if (!made) meeting.abort();
  if (!meeting.barrier(region.hosts) || !made) {
    return fail_nccl(ncclRemoteError, made ? "another rank gave up" : text);
  }
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  return join(new_comm, name, static_cast<int>(members.size()), static_cast<int>(own - members.begin()));
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm == nullptr ? fail_nccl(ncclInvalidArgument, "the communicator is null") : ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;  // work that is still queued holds the communicator
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return fail_nccl(ncclInvalidArgument, "the communicator is null");
  comm->communicator->meeting->abort();
  return ncclCommDestroy(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr) return fail_nccl(ncclInvalidArgument, "the communicator is null");
  const Communicator& communicator = *comm->communicator;
  *error = communicator.async_error;
  if (*error == ncclSuccess && communicator.meeting->aborted()) *error = ncclRemoteError;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->communicator->meeting->num_ranks();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->communicator->meeting->rank();
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->communicator->device;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit_collective(comm, {Collective::Kind::kAllReduce, send, receive, count, type, reduction}, stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit_collective(comm, {Collective::Kind::kAllGather, send, receive, count, type}, stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  return submit_collective(comm, {Collective::Kind::kReduceScatter, send, receive, count, type, reduction}, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit_collective(comm, {Collective::Kind::kBroadcast, send, receive, count, type, ncclSum, root}, stream);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit_transfer(comm, true, const_cast<void*>(data), count, type, peer, stream);
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return submit_transfer(comm, false, data, count, type, peer, stream);
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return fail_nccl(ncclInvalidUsage, "no group is open");
  if (--group_depth > 0) return ncclSuccess;
  ncclResult_t worst = ncclSuccess;
  for (const Pending& pending : std::exchange(group, {})) {
    if (const ncclResult_t result = enqueue_pending(pending); worst == ncclSuccess) worst = result;
  }
  return worst;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }
