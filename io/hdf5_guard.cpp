#include "io/hdf5_guard.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

namespace tokenmill::io {
namespace {

constexpr int kExitEnvironment = 4;  // as every error of a file
constexpr std::array<int, 3> kCrashes{SIGSEGV, SIGBUS, SIGABRT};

__attribute__((tls_model("initial-exec"))) thread_local const char* file_at_hand = nullptr;
std::array<struct sigaction, NSIG> previous{};

extern "C" void on_crash(int number, siginfo_t* info, void*) {
  if (info->si_code > 0 || info->si_pid == ::getpid()) end_if_in_hdf5();
  ::sigaction(number, &previous[static_cast<size_t>(number)], nullptr);
  if (info->si_code <= 0) ::raise(number);  // else the same instruction raises it again
}

/// Once for the process: handlers that come later ask end_if_in_hdf5() themselves.
void install() {
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int number : kCrashes) ::sigaction(number, &action, &previous[static_cast<size_t>(number)]);
}

}  // namespace

Hdf5Guard::Hdf5Guard(const std::string& where) : outer_(std::exchange(file_at_hand, where.c_str())) {
  static std::once_flag once;
  std::call_once(once, install);
}

Hdf5Guard::~Hdf5Guard() { file_at_hand = outer_; }

void end_if_in_hdf5() {
  if (file_at_hand == nullptr) return;
  constexpr const char* kParts[] = {"error[io] ", nullptr,
                                    ": the HDF5 library crashed while it read this file, which is damaged; check it with "
                                    "h5dump or write it anew\n"};
  for (const char* part : kParts) {
    const char* text = part == nullptr ? file_at_hand : part;
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, std::strlen(text));
  }
  ::_exit(kExitEnvironment);
}

}  // namespace tokenmill::io
