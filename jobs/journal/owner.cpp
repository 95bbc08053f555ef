#include "jobs/journal/owner.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <ctime>
#include <sstream>

#include "io/file.h"
#include "jobs/output_dir.h"

namespace tokenmill::jobs {
namespace {

constexpr int64_t kMaxBytes = 4096;

}  // namespace

std::optional<Owner> Owner::read(const std::string& journal) {
  std::istringstream text;
  try {
    text.str(io::read_file(journal + "/" + OutputDir::kOwnerName, kMaxBytes));
  } catch (const Error&) {
    return std::nullopt;
  }
  Owner owner;
  for (std::string name, value; text >> name >> value;) {
    if (name == "host") owner.host = value;
    if (name == "pid") owner.pid = value;
    if (name == "started") owner.started = value;
    if (name == "run") owner.run = std::atoll(value.c_str());
    if (name == "rows") owner.rows = std::atoll(value.c_str());
    if (name == "token") owner.token = value;
  }
  if (owner.token.empty()) return std::nullopt;
  return owner;
}

Owner Owner::me(const std::string& token, int64_t run, int64_t rows) {
  return {.host = parallel::host_name(),
          .pid = std::to_string(::getpid()),
          .started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
          .token = token,
          .run = run,
          .rows = rows};
}

std::string Owner::text() const {
  return fmt::format("host {}\npid {}\nstarted {}\nrun {}\nrows {}\ntoken {}\n", host, pid, started, run, rows,
                     token);
}

}  // namespace tokenmill::jobs
