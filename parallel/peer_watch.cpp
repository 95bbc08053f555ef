#include "parallel/peer_watch.h"

namespace tokenmill::parallel {

PeerWatch::PeerWatch(const Comm& group) {
  const Process mine{ProcessId::self(), Comm::world().rank()};
  for (const Process& process : gather_values(group, mine))
    if (process.world_rank != mine.world_rank && process.id.is_near()) peers_.push_back(process);
}

void PeerWatch::check(const std::string& waiting_for) const {
  for (const Process& peer : peers_)
    if (peer.id.is_gone())
      throw Error(ErrorKind::kMpi, "waited for {} of a group with rank {} on {}, whose process {} is gone", waiting_for,
                  peer.world_rank, peer.id.host, peer.id.pid);
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
