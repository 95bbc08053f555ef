#include "jobs/journal/predecessor.h"

#include <sys/stat.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "io/file.h"
#include "jobs/journal/owner.h"
#include "jobs/output_dir.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"

namespace tokenmill::jobs {
namespace {

/// When a run last showed that it lives; nothing: there is no sign of any.
std::optional<int64_t> last_sign(const std::string& path) {
  try {
    const io::File opened =
        io::File::open_read(path);  // network file systems ask the server again when a file is opened
    struct stat status {};
    if (fstat(opened.fd(), &status) != 0) return std::nullopt;
    return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  } catch (const Error&) {
    return std::nullopt;
  }
}

[[noreturn]] void refuse(const OutputDir& directory, const Owner& owner) {
  throw Error(
      ErrorKind::kConfig,
      "output directory {} is in use: run {} ({}) lives; wait until it ends, stop it (kill -USR1 {} on {} saves "
      "its rows, and this command goes on with them), or give another --output",
      directory.path(), owner.run, owner.describe(), owner.process.pid, owner.process.host);
}

}  // namespace

void Predecessor::wait_until_over(const OutputDir& directory, const std::string& own_token) {
  constexpr double kQuiet_s = 1.2 * SignOfLife::kBetween_s;  // an owner that lives is refused without a word before
  const Owner me = Owner::me(own_token);
  const SteadyClock clock;
  double start_s = clock.now_s();
  std::string token;
  int64_t sign_ns = 0;
  for (bool told = false;; std::this_thread::sleep_for(std::chrono::milliseconds(200))) {
    const auto owner = Owner::read(directory.journal());
    if (!owner || owner->token == own_token) return;
    const std::optional<int64_t> sign = last_sign(directory.sign_of_life_path());
    if (!sign || owner->process.is_gone()) return;
    const bool is_replaced = me.is_requeue_of(*owner);
    if (owner->token == over_token_ && (is_replaced || *sign == over_sign_ns_)) return;
    if (owner->token != std::exchange(token, owner->token)) {
      start_s = clock.now_s();
      sign_ns = *sign;
    }
    if (*sign != sign_ns && !is_replaced) refuse(directory, *owner);
    const double waited_s = clock.now_s() - start_s;
    if (waited_s > silent_s_) {
      over_token_ = token;
      over_sign_ns_ = *sign;
      log::warning("taking over {} after {:g} s: run {} ({}) {}", directory.path(), silent_s_, owner->run,
                   owner->describe(),
                   is_replaced ? "belongs to the job that Slurm has started again" : "shows no sign of life");
      return;
    }
    if (waited_s > kQuiet_s && !std::exchange(told, true))
      log::warning("{} belongs to run {} ({}), which has not ended in order: waiting for up to {:g} s {}",
                   directory.path(), owner->run, owner->describe(), silent_s_,
                   is_replaced ? "until it does" : "for a sign of life");
  }
}

}  // namespace tokenmill::jobs
