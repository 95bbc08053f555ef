#include "engine/models/chunk_relay.h"

#include <algorithm>

namespace tokenmill {
namespace {

constexpr double kMaxSleep_s = 100e-6;

/// Messages of two nodes arrive in order, so that one tag would do; with more, a mistake shows at once.
int tag_of(const ChunkRoute& route) { return static_cast<int>(route.id % 16384); }

}  // namespace

void ChunkRelay::run() {
  parallel::BackOff back_off(kMaxSleep_s);
  while (next_receive_ < routes_.size() || next_send_ < routes_.size() || !receives_.empty() || !sends_.empty()) {
    if (ring_.stopped()) {
      drain();
      break;
    }
    bool moved = start_receives();
    moved |= end_receives();
    moved |= start_sends();
    moved |= end_sends();
    ring_.release_below(consumer_, sends_.empty() ? next_send_ : sends_.front().chunk);
    if (moved)
      back_off.reset();
    else
      back_off.pause();
  }
}

parallel::ByteTransfer ChunkRelay::receive(size_t chunk, std::span<std::byte> bytes) const {
  const ChunkRoute& route = routes_[chunk];
  return parallel::ByteTransfer::receive(nodes_, bytes.first(static_cast<size_t>(route.length)), route.from,
                                         tag_of(route));
}

parallel::ByteTransfer ChunkRelay::send(size_t chunk, std::span<const std::byte> bytes) const {
  return parallel::ByteTransfer::send(nodes_, bytes, routes_[chunk].to, tag_of(routes_[chunk]));
}

bool ChunkRelay::start_receives() {
  bool moved = false;
  for (; next_receive_ < routes_.size(); ++next_receive_) {
    if (routes_[next_receive_].from < 0) continue;
    if (!ring_.is_free(next_receive_)) break;
    receives_.push_back({next_receive_, receive(next_receive_, ring_.slot(next_receive_))});
    moved = true;
  }
  return moved;
}

bool ChunkRelay::end_receives() {
  bool moved = false;
  for (; !receives_.empty() && receives_.front().transfer.done(); moved = true) {
    const Pending& ended = receives_.front();
    if (ended.transfer.num_bytes() == routes_[ended.chunk].length)
      ring_.publish(ended.chunk);
    else
      ring_.stop();
    receives_.pop_front();
  }
  return moved;
}

bool ChunkRelay::start_sends() {
  bool moved = false;
  for (; next_send_ < routes_.size(); ++next_send_) {
    if (routes_[next_send_].to < 0) continue;
    if (!ring_.is_filled(next_send_)) break;
    const auto length = static_cast<size_t>(routes_[next_send_].length);
    sends_.push_back({next_send_, send(next_send_, ring_.slot(next_send_).first(length))});
    moved = true;
  }
  return moved;
}

bool ChunkRelay::end_sends() {
  bool moved = false;
  for (; !sends_.empty() && sends_.front().transfer.done(); moved = true) sends_.pop_front();
  return moved;
}

/// Ends what is under way and replaces what is not by empty messages, chunk after chunk in the order of all nodes: what
/// the first unfinished chunk waits for is then never a later one.
void ChunkRelay::drain() {
  std::vector<std::byte> nowhere;
  for (size_t chunk = 0; chunk < routes_.size(); ++chunk) {
    const ChunkRoute& route = routes_[chunk];
    if (!receives_.empty() && receives_.front().chunk == chunk) {
      receives_.front().transfer.wait();
      receives_.pop_front();
    } else if (chunk >= next_receive_ && route.from >= 0) {
      nowhere.resize(std::max(nowhere.size(), static_cast<size_t>(route.length)));
      receive(chunk, nowhere).wait();
    }
    if (!sends_.empty() && sends_.front().chunk == chunk) {
      sends_.front().transfer.wait();
      sends_.pop_front();
    } else if (chunk >= next_send_ && route.to >= 0) {
      send(chunk, {}).wait();
    }
  }
}

}  // namespace tokenmill
