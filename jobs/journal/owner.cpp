#include "jobs/journal/owner.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sstream>

#include "io/file.h"
#include "jobs/output_dir.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

constexpr int64_t kMaxBytes = 4096;

template <size_t kSize>
void copy_text(char (&to)[kSize], const std::string& text) {
  std::snprintf(to, kSize, "%s", text.c_str());
}

}  // namespace

std::optional<Owner> Owner::read(const std::string& journal) {
  std::istringstream text;
  try {
    text.str(io::read_file(journal + "/" + OutputDir::kOwnerName, kMaxBytes));
  } catch (const Error&) {
    return std::nullopt;
  }
  Owner owner;
  parallel::ProcessId& process = owner.process;
  for (std::string name, value; text >> name >> value;) {
    if (name == "host") copy_text(process.host, value);
    if (name == "boot_id") copy_text(process.boot_id, value);
    if (name == "pid") process.pid = std::atoll(value.c_str());
    if (name == "pid_namespace") process.pid_namespace = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "start_ticks") process.start_ticks = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "started") owner.started = value;
    if (name == "slurm_job") owner.slurm_job = value;
    if (name == "slurm_restarts") owner.slurm_restarts = std::atoll(value.c_str());
    if (name == "run") owner.run = std::atoll(value.c_str());
    if (name == "first_row") owner.rows.begin = std::atoll(value.c_str());
    if (name == "end_row") owner.rows.end = std::atoll(value.c_str());
    if (name == "token") owner.token = value;
  }
  if (owner.token.empty()) return std::nullopt;
  return owner;
}

Owner Owner::me(const std::string& token, int64_t run, RowRange rows) {
  const char* slurm_job = std::getenv("SLURM_JOB_ID");
  const char* slurm_restarts = std::getenv("SLURM_RESTART_COUNT");  // not set the first time
  return {.process = parallel::ProcessId::self(),
          .started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
          .token = token,
          .slurm_job = slurm_job == nullptr ? "" : slurm_job,
          .slurm_restarts = slurm_restarts == nullptr ? 0 : std::atoll(slurm_restarts),
          .run = run,
          .rows = rows};
}

std::string Owner::text() const {
  std::string text = fmt::format("host {}\npid {}\nstarted {}\nrun {}\nfirst_row {}\nend_row {}\ntoken {}\n",
                                 process.host, process.pid, started, run, rows.begin, rows.end, token);
  if (process.boot_id[0] != '\0')
    text += fmt::format("boot_id {}\npid_namespace {}\nstart_ticks {}\n", process.boot_id, process.pid_namespace,
                        process.start_ticks);
  if (!slurm_job.empty()) text += fmt::format("slurm_job {}\nslurm_restarts {}\n", slurm_job, slurm_restarts);
  return text;
}

std::string Owner::describe() const {
  return fmt::format("{}, pid {}, started {}", process.host, process.pid, started);
}

bool Owner::is_requeue_of(const Owner& earlier) const {
  return !slurm_job.empty() && slurm_job == earlier.slurm_job && slurm_restarts > earlier.slurm_restarts;
}

}  // namespace tokenmill::jobs
