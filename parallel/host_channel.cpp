#include "parallel/host_channel.h"

#include <chrono>

#include "kernels/core/check.h"

namespace tokenmill::parallel {
namespace {

constexpr size_t kMaxFrameBytes = size_t{1} << 30;
constexpr int kMaxType = 32767;  // the smallest MPI_TAG_UB the standard allows

using Clock = std::chrono::steady_clock;

bool has_passed(Clock::time_point start, double seconds) {
  return std::chrono::duration<double>(Clock::now() - start).count() >= seconds;
}

}  // namespace

HostChannel::HostChannel(const Comm& comm) : comm_(comm.duplicate()) {}

HostChannel::~HostChannel() {
  // MPI may still read these bytes: give them up rather than free them.
  for (Pending& pending : pending_)
    if (pending.request != MPI_REQUEST_NULL) new std::vector<std::byte>(std::move(pending.bytes));
}

void HostChannel::send(int to, int type, std::span<const std::byte> bytes) {
  TM_ASSERT(to >= 0 && to < size() && type >= 0 && type <= kMaxType && bytes.size() <= kMaxFrameBytes,
            "frame of type {}, {} bytes, to rank {} of {}", type, bytes.size(), to, size());
  retire_sends();
  Pending& pending = pending_.emplace_back();
  pending.bytes.assign(bytes.begin(), bytes.end());
  TM_MPI(MPI_Isend(pending.bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, type, comm_.handle(),
                   &pending.request));
}

void HostChannel::retire_sends() {
  while (!pending_.empty()) {
    int done = 0;
    TM_MPI(MPI_Test(&pending_.front().request, &done, MPI_STATUS_IGNORE));
    if (!done) return;
    pending_.pop_front();
  }
}

std::optional<Frame> HostChannel::try_receive(int from) {
  int arrived = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  TM_MPI(MPI_Improbe(from, MPI_ANY_TAG, comm_.handle(), &arrived, &message, &status));
  if (!arrived) return std::nullopt;
  int count = 0;
  TM_MPI(MPI_Get_count(&status, MPI_BYTE, &count));
  Frame frame{
      .from = status.MPI_SOURCE, .type = status.MPI_TAG, .bytes = std::vector<std::byte>(static_cast<size_t>(count))};
  TM_MPI(MPI_Mrecv(frame.bytes.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE));
  return frame;
}

std::optional<Frame> HostChannel::poll() {
  retire_sends();
  return try_receive(MPI_ANY_SOURCE);
}

Frame HostChannel::receive(int from, double timeout_s, std::string_view what) {
  const auto start = Clock::now();
  for (BackOff back_off;; back_off.pause()) {
    retire_sends();
    if (auto frame = try_receive(from)) return std::move(*frame);
    if (has_passed(start, timeout_s))
      throw Error(ErrorKind::kMpi, "waited {:.0f} s for {} from rank {} of {}; that rank is stuck or gone", timeout_s,
                  what, from, size());
  }
}

bool HostChannel::flush(double timeout_s) {
  const auto start = Clock::now();
  for (BackOff back_off;; back_off.pause()) {
    retire_sends();
    if (pending_.empty()) return true;
    if (has_passed(start, timeout_s)) return false;
  }
}

}  // namespace tokenmill::parallel
