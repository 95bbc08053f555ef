#include "jobs/death_note.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "io/hdf5_guard.h"
#include "kernels/core/check.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

constexpr std::array<int, 5> kFatal{SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr size_t kSpareBytes = size_t{64} << 10;
constexpr unsigned kLongest_s = 10;  // for a note: a file system that hangs must not keep a dead process alive

// All that the handlers touch: no locks, no allocation.
std::array<char, 4096> note_path{};  // empty: no note is wanted
std::array<struct sigaction, NSIG> previous{};
std::terminate_handler previous_terminate = nullptr;
std::atomic<bool> written = false;
__attribute__((tls_model("initial-exec"))) thread_local int64_t row_at_hand = -1;

/// Appends a number; enough of snprintf for a signal handler.
char* append(char* at, int64_t number) {
  if (number < 0) *at++ = '-';
  uint64_t rest = number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  std::array<char, 20> digits{};
  size_t count = 0;
  do digits[count++] = static_cast<char>('0' + rest % 10);
  while ((rest /= 10) > 0);
  while (count > 0) *at++ = digits[--count];
  return at;
}

/// Async-signal-safe. Nobody can be told when it fails.
void put(const char* path, int64_t row, std::string_view cause) {
  std::array<char, 512> text{};
  char* at = append(text.data(), row);
  *at++ = ' ';
  const size_t room = text.size() - static_cast<size_t>(at - text.data());
  const size_t taken = std::min(cause.size(), room);
  std::memcpy(at, cause.data(), taken);
  at += taken;
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t ignored = ::write(fd, text.data(), static_cast<size_t>(at - text.data()));
  ::close(fd);
}

void put_own(std::string_view cause) {
  if (note_path[0] == '\0' || written.exchange(true)) return;
  put(note_path.data(), row_at_hand, cause);
}

extern "C" void on_fatal_signal(int number, siginfo_t* info, void*) {
  const int error = errno;
  if (info->si_code > 0 || info->si_pid == ::getpid()) {
    io::end_if_in_hdf5();  // the file is at fault, not the row
    ::alarm(kLongest_s);
    std::array<char, 32> cause{"signal "};
    char* end = append(cause.data() + std::strlen(cause.data()), number);
    put_own({cause.data(), static_cast<size_t>(end - cause.data())});
    ::alarm(0);
  }
  ::sigaction(number, &previous[static_cast<size_t>(number)], nullptr);
  if (info->si_code <= 0) ::raise(number);  // else the same instruction raises it again
  errno = error;
}

[[noreturn]] void on_terminate() {
  if (const std::exception_ptr exception = std::current_exception()) {
    try {
      std::rethrow_exception(exception);
    } catch (const std::exception& e) {
      DeathNote::write(e);
    } catch (...) {
      put_own("an exception of an unknown type");
    }
  } else {
    put_own("std::terminate");
  }
  previous_terminate();
  std::abort();
}

}  // namespace

DeathNote::DeathNote(const std::string& path) {
  TM_ASSERT(note_path[0] == '\0', "two death notes in one process");
  if (path.size() >= note_path.size()) throw Error(ErrorKind::kConfig, "{} is too long a path", path);
  written = false;
  struct sigaction action {};
  action.sa_sigaction = on_fatal_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int number : kFatal) TM_ASSERT(::sigaction(number, &action, &previous[static_cast<size_t>(number)]) == 0);
  previous_terminate = std::set_terminate(on_terminate);
  std::memcpy(note_path.data(), path.c_str(), path.size() + 1);
}

DeathNote::~DeathNote() {
  note_path[0] = '\0';
  std::set_terminate(previous_terminate);
  for (const int number : kFatal) ::sigaction(number, &previous[static_cast<size_t>(number)], nullptr);
}

void DeathNote::write(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (ours != nullptr && (ours->kind() == ErrorKind::kIo || ours->kind() == ErrorKind::kMpi)) return;
  put_own(error.what());
}

void DeathNote::write(const std::string& path, int64_t row, const std::string& cause) { put(path.c_str(), row, cause); }

DeathNote::OneRow::OneRow(int64_t row) : exceptions_(std::uncaught_exceptions()) { row_at_hand = row; }

DeathNote::OneRow::~OneRow() {
  if (std::uncaught_exceptions() == exceptions_) row_at_hand = -1;
}

DeathNote::SpareStack::SpareStack()
    : memory_(::mmap(nullptr, kSpareBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  TM_ASSERT(memory_ != MAP_FAILED);
  const stack_t stack{.ss_sp = memory_, .ss_flags = 0, .ss_size = kSpareBytes};
  TM_ASSERT(::sigaltstack(&stack, nullptr) == 0);
}

DeathNote::SpareStack::~SpareStack() {
  const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  ::sigaltstack(&none, nullptr);
  ::munmap(memory_, kSpareBytes);
}

}  // namespace tokenmill::jobs
