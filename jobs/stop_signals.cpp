#include "jobs/stop_signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "kernels/core/check.h"
#include "kernels/core/clock.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&set, signal);
  return set;
}

}  // namespace

StopLevel escalated(StopLevel level, int signal, double since_first_term_s) {
  if (signal != SIGTERM) return std::max(level, StopLevel::kDrain);
  if (level < StopLevel::kSave) return StopLevel::kSave;
  return since_first_term_s < kSameTerm_s ? level : StopLevel::kNow;
}

StopSignals::StopSignals() {
  const sigset_t set = stop_signals();
  TM_ASSERT(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  end_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || end_fd_ < 0) throw Error(ErrorKind::kIo, "signalfd: {}", std::strerror(errno));
  thread_ = std::thread([this] { run(); });
}

StopSignals::~StopSignals() {
  const uint64_t one = 1;
  (void)!write(end_fd_, &one, sizeof one);
  thread_.join();
  close(signal_fd_);
  close(end_fd_);
}

void StopSignals::handle(std::function<void(StopLevel)> handler) {
  std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
  if (handler_ && level_ != StopLevel::kNone) handler_(level_);
}

void StopSignals::run() {
  std::array<pollfd, 2> fds{pollfd{signal_fd_, POLLIN, 0}, pollfd{end_fd_, POLLIN, 0}};
  for (;;) {
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    if ((fds[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info{};
    if ((fds[0].revents & POLLIN) != 0 && read(signal_fd_, &info, sizeof info) == sizeof info)
      take(static_cast<int>(info.ssi_signo));
  }
}

void StopSignals::take(int signal) {
  const double now_s = SteadyClock().now_s();
  const StopLevel level = escalated(level_, signal, now_s - first_term_s_);
  if (signal == SIGTERM && level == StopLevel::kSave && level_ < level) first_term_s_ = now_s;
  std::lock_guard lock(mutex_);
  if (level == level_) return;
  level_ = level;
  if (handler_) handler_(level);
}

}  // namespace tokenmill::jobs
