#include "parallel/nccl_communicator.h"

#include <algorithm>
#include <exception>

#include "kernels/core/check.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"
#include "kernels/device/cuda_check.h"
#include "parallel/topology.h"

namespace tokenmill::parallel {
namespace {

/// Everything travels as bytes.
size_t num_bytes(TensorView view) { return static_cast<size_t>(view.num_bytes()); }

std::byte* data(TensorView view) {
  TM_ASSERT(!view.is_host(), "{} is not in device memory", view.describe());
  return static_cast<std::byte*>(view.data());
}

/// Collective: "ranks 0-1, 4".
std::string describe_ranks(const Comm& group) {
  std::vector<int> ranks = gather_values(group, Comm::world().rank());
  std::sort(ranks.begin(), ranks.end());
  return "ranks " + describe_runs(ranks, ", ");
}

/// Inside a group a call is under way until the group ends.
ncclResult_t begun(ncclResult_t result) { return result == ncclInProgress ? ncclSuccess : result; }

/// Sends and receives between start and end of a group make progress together.
class NcclGroup {
 public:
  NcclGroup() { TM_NCCL(ncclGroupStart()); }
  ~NcclGroup() {
    if (!ended_) static_cast<void>(ncclGroupEnd());  // an exception is on its way
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ncclResult_t end() {
    ended_ = true;
    return ncclGroupEnd();
  }

 private:
  bool ended_ = false;
};

}  // namespace

NcclCommunicator::NcclCommunicator(const Comm& group, Device device, Stream& stream)
    : rank_(group.rank()),
      size_(group.size()),
      device_(device),
      stream_(stream),
      watch_(group),
      ranks_(describe_ranks(group)),
      exceptions_at_start_(std::uncaught_exceptions()) {
  TM_ASSERT(size_ >= 2 && stream.native_handle() != nullptr);
  if (streams_are_lazy())
    throw AgreedError(ErrorKind::kConfig,
                      "emulated devices run their streams lazily, so that ranks which wait for each other elsewhere would "
                      "never start a transfer; set TOKENMILL_EMULATION_MODE=eager");
  join(group);
  int least = 0, greatest = 0;
  TM_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  TM_CUDA(cudaStreamCreateWithPriority(&own_, cudaStreamNonBlocking, greatest));  // others wait for what it sends
  ahead_ = take_event();
  stream_.add_check(this, [this] { check(); });
}

void NcclCommunicator::join(const Comm& group) {
  std::string id_bytes;
  run_on_root(group, [&] {
    ncclUniqueId id;
    TM_NCCL(ncclGetUniqueId(&id));
    id_bytes.assign(id.internal, sizeof id.internal);
  });
  broadcast_bytes(group, id_bytes, 0);
  agree_on(group, [&] {
    TM_CUDA(cudaSetDevice(device_.index));
    ncclUniqueId id;
    std::copy(id_bytes.begin(), id_bytes.end(), id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      TM_NCCL(settled(ncclCommInitRankConfig(&comm_, size_, id, rank_, &config), "ncclCommInitRankConfig"));
    } catch (...) {
      abort();
      throw;
    }
  });
}

NcclCommunicator::~NcclCommunicator() {
  stream_.remove_check(this);
  // Ending in order waits for the peers' last transfers.
  if (comm_ != nullptr && std::uncaught_exceptions() == exceptions_at_start_) {
    try {
      if (settled(ncclCommFinalize(comm_), "ncclCommFinalize") == ncclSuccess) {
        static_cast<void>(ncclCommDestroy(comm_));
        comm_ = nullptr;
      }
    } catch (const Error& e) {
      log::warning("{}", e.what());
    }
  }
  abort();
  if (own_ != nullptr) static_cast<void>(cudaStreamSynchronize(own_));
  for (const auto& [transfer, event] : under_way_) unused_.push_back(event);
  if (ahead_ != nullptr) unused_.push_back(ahead_);
  for (cudaEvent_t event : unused_) static_cast<void>(cudaEventDestroy(event));
  if (own_ != nullptr) static_cast<void>(cudaStreamDestroy(own_));
}

void NcclCommunicator::abort() {
  if (comm_ == nullptr) return;
  static_cast<void>(ncclCommAbort(comm_));  // also lets kernels of transfers go that wait for a peer
  comm_ = nullptr;
}

ncclResult_t NcclCommunicator::settled(ncclResult_t result, const char* call) const {
  const SteadyClock clock;
  const double begin_s = clock.now_s();
  for (PeerWait wait(watch_, call); result == ncclInProgress; wait.pause()) {
    if (clock.now_s() - begin_s > kJoinSeconds)
      throw Error(ErrorKind::kDevice, "{} of {}: the ranks have not all come within {} s; NCCL_DEBUG=INFO says more", call,
                  ranks_, kJoinSeconds);
    TM_NCCL(ncclCommGetAsyncError(comm_, &result));
  }
  return result;
}

void NcclCommunicator::check() {
  constexpr double kBetweenLooksS = 1;
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  TM_NCCL(ncclCommGetAsyncError(comm_, &state));
  const double now_s = SteadyClock().now_s();
  if (state == ncclSuccess || state == ncclInProgress) {
    if (now_s - looked_s_ < kBetweenLooksS) return;
    looked_s_ = now_s;
    watch_.check("transfers");
    return;
  }
  const char* detail = ncclGetLastError(comm_);
  const std::string text = detail == nullptr || *detail == '\0' ? "" : std::string(": ") + detail;
  abort();
  watch_.check("transfers");  // a dead peer says more than what NCCL makes of it
  const ErrorKind kind = state == ncclRemoteError ? ErrorKind::kMpi : ErrorKind::kDevice;  // another rank's fault, or here
  throw Error(kind, "a transfer between {} failed on {}: {}{}; NCCL_DEBUG=INFO says more", ranks_,
              to_string(device_), ncclGetErrorString(state), text);
}

cudaEvent_t NcclCommunicator::take_event() {
  cudaEvent_t event = nullptr;
  if (unused_.empty()) {
    TM_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  } else {
    event = unused_.back();
    unused_.pop_back();
  }
  return event;
}

void NcclCommunicator::follow_stream() {
  TM_CUDA(cudaEventRecord(ahead_, static_cast<cudaStream_t>(stream_.native_handle())));
  TM_CUDA(cudaStreamWaitEvent(own_, ahead_, 0));
}

void NcclCommunicator::started(Transfer transfer) {
  cudaEvent_t end = take_event();
  under_way_.emplace_back(transfer, end);
  TM_CUDA(cudaEventRecord(end, own_));
}

void NcclCommunicator::do_exchange(Transfer transfer, TensorView received, TensorView sent) {
  follow_stream();
  const size_t part_bytes = num_bytes(sent) / static_cast<size_t>(size_);
  const auto part = [part_bytes](TensorView view, int rank) { return data(view) + part_bytes * static_cast<size_t>(rank); };
  TM_CUDA(cudaMemcpyAsync(part(received, rank_), part(sent, rank_), part_bytes, cudaMemcpyDeviceToDevice, own_));
  NcclGroup group;
  for (int step = 1; step < size_; ++step) {  // all ranks send to different ones at a time
    const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
    TM_NCCL(begun(ncclSend(part(sent, to), part_bytes, ncclUint8, to, comm_, own_)));
    TM_NCCL(begun(ncclRecv(part(received, from), part_bytes, ncclUint8, from, comm_, own_)));
  }
  TM_NCCL(settled(group.end(), "exchange"));
  started(transfer);
}

void NcclCommunicator::do_all_gather(Transfer transfer, TensorView all, TensorView part) {
  follow_stream();
  TM_NCCL(settled(ncclAllGather(data(part), data(all), num_bytes(part), ncclUint8, comm_, own_), "all_gather"));
  started(transfer);
}

void NcclCommunicator::do_broadcast(Transfer transfer, TensorView view, int root) {
  follow_stream();
  TM_NCCL(settled(ncclBroadcast(data(view), data(view), num_bytes(view), ncclUint8, root, comm_, own_), "broadcast"));
  started(transfer);
}

void NcclCommunicator::do_send(Transfer transfer, TensorView view, int to) {
  follow_stream();
  TM_NCCL(settled(ncclSend(data(view), num_bytes(view), ncclUint8, to, comm_, own_), "send"));
  started(transfer);
}

void NcclCommunicator::do_recv(Transfer transfer, TensorView view, int from) {
  follow_stream();
  TM_NCCL(settled(ncclRecv(data(view), num_bytes(view), ncclUint8, from, comm_, own_), "recv"));
  started(transfer);
}

void NcclCommunicator::do_wait(Transfer transfer) {
  const auto entry = std::find_if(under_way_.begin(), under_way_.end(),
                                  [transfer](const auto& one) { return one.first == transfer; });
  if (entry == under_way_.end()) return;  // zero elements
  TM_CUDA(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream_.native_handle()), entry->second, 0));
  unused_.push_back(entry->second);
  under_way_.erase(entry);
}

}  // namespace tokenmill::parallel
