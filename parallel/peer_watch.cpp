#include "parallel/peer_watch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <optional>

namespace tokenmill::parallel {
namespace {

/// When a living process started; nothing when there is none (or only its zombie).
std::optional<uint64_t> start_of(int64_t pid) {
  std::FILE* file = std::fopen(fmt::format("/proc/{}/stat", pid).c_str(), "re");
  if (file == nullptr) return std::nullopt;
  char text[1024] = "";
  const size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[length] = '\0';
  const char* after_name = std::strrchr(text, ')');  // the name may hold anything
  char state = 0;
  unsigned long long start = 0;
  if (after_name == nullptr ||
      std::sscanf(after_name + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                  &state, &start) != 2 ||
      state == 'Z' || state == 'X')
    return std::nullopt;
  return start;
}

}  // namespace

PeerWatch::Process PeerWatch::self() {
  Process process;
  std::snprintf(process.host, sizeof process.host, "%s", host_name().c_str());
  process.pid = getpid();
  process.start_ticks = start_of(process.pid).value_or(0);
  struct stat status {};
  if (stat("/proc/self/ns/pid", &status) == 0) process.pid_namespace = status.st_ino;
  process.world_rank = Comm::world().rank();
  return process;
}

PeerWatch::PeerWatch(const Comm& group) {
  const Process mine = self();
  for (const Process& process : gather_values(group, mine))
    if (process.world_rank != mine.world_rank && std::strcmp(process.host, mine.host) == 0 && mine.start_ticks != 0 &&
        mine.pid_namespace != 0 && process.pid_namespace == mine.pid_namespace)
      peers_.push_back(process);
}

void PeerWatch::check(const std::string& waiting_for) const {
  for (const Process& peer : peers_)
    if (start_of(peer.pid) != peer.start_ticks)
      throw Error(ErrorKind::kMpi, "waited for {} of a group with rank {} on {}, whose process {} is gone", waiting_for,
                  peer.world_rank, peer.host, peer.pid);
}

void PeerWait::pause() {
  constexpr std::chrono::seconds kBetweenLooks(1);
  back_off_.pause();
  if (!back_off_.sleeps()) return;
  const auto now = Clock::now();
  if (!looked_) looked_ = now;
  if (now - *looked_ < kBetweenLooks) return;
  looked_ = now;
  watch_.check(waiting_for_);
}

}  // namespace tokenmill::parallel
