#include "app/time_limit.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <optional>

#include "kernels/core/clock.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

std::optional<double> parse_end_time(const char* text) {
  if (text == nullptr || *text == '\0') return std::nullopt;
  double seconds = 0;
  const char* end = text + std::strlen(text);
  const auto result = std::from_chars(text, end, seconds);
  if (result.ec != std::errc() || result.ptr != end || seconds <= 0)
    throw Error(ErrorKind::kConfig, "SLURM_JOB_END_TIME is {}; it must be a number of seconds since 1970", text);
  return seconds;
}

}  // namespace

TwoClocks TwoClocks::now() {
  using std::chrono::duration;
  return {SteadyClock().now_s(), duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()};
}

jobs::WalltimeOptions walltime_options(const RunOptions& options, double start_s, const TwoClocks& now,
                                       const char* slurm_job_end_time) {
  jobs::WalltimeOptions out{.start_s = start_s, .stop_before_s = options.stop_before_seconds};
  if (options.deadline && *options.deadline <= now.epoch_s)
    throw Error(
        ErrorKind::kConfig,
        "--deadline {:.0f} was {:.0f} s ago (seconds since 1970, UTC); give one that comes, e.g. what `scontrol "
        "show job` says is the job's EndTime",
        *options.deadline, now.epoch_s - *options.deadline);
  const std::optional<double> end = options.deadline ? options.deadline : parse_end_time(slurm_job_end_time);
  if (end) out.end_s = std::min(out.end_s, now.steady_s + (*end - now.epoch_s));
  if (options.max_seconds) out.end_s = std::min(out.end_s, start_s + *options.max_seconds);
  return out;
}

}  // namespace tokenmill::app
