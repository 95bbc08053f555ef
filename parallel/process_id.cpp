#include "parallel/process_id.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "parallel/mpi.h"

namespace tokenmill::parallel {
namespace {

/// What the kernel tells of a process; nothing when there is none, or when it tells nothing to this user.
struct State {
  char letter = 0;
  unsigned long long start_ticks = 0;
};

std::optional<State> state_of(int64_t pid) {
  std::FILE* file = std::fopen(fmt::format("/proc/{}/stat", pid).c_str(), "re");
  if (file == nullptr) return std::nullopt;
  char text[1024] = "";
  const size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[length] = '\0';
  const char* after_name = std::strrchr(text, ')');  // the name may hold anything
  State state;
  if (after_name == nullptr ||
      std::sscanf(after_name + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                  &state.letter, &state.start_ticks) != 2)
    return std::nullopt;
  return state;
}

struct Place {
  std::string boot_id;
  uint64_t pid_namespace = 0;
};

Place this_place() {
  Place place;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> place.boot_id;
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) == 0) place.pid_namespace = status.st_ino;
  return place;
}

}  // namespace

ProcessId ProcessId::self() {
  const Place place = this_place();
  ProcessId id;
  std::snprintf(id.host, sizeof id.host, "%s", host_name().c_str());
  std::snprintf(id.boot_id, sizeof id.boot_id, "%s", place.boot_id.c_str());
  id.pid = getpid();
  id.pid_namespace = place.pid_namespace;
  id.start_ticks = state_of(id.pid).value_or(State{}).start_ticks;
  return id;
}

bool ProcessId::is_near() const {
  const Place place = this_place();
  return boot_id[0] != '\0' && pid_namespace != 0 && start_ticks != 0 && place.boot_id == boot_id &&
         place.pid_namespace == pid_namespace;
}

bool ProcessId::is_gone() const {
  if (!is_near()) return false;
  if (const std::optional<State> state = state_of(pid))
    return state->letter == 'Z' || state->letter == 'X' || state->start_ticks != start_ticks;
  return kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;  // other users' may be hidden in /proc
}

}  // namespace tokenmill::parallel
