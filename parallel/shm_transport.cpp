#include "parallel/shm_transport.h"

#include <algorithm>
#include <cstring>

#include "kernels/core/check.h"

namespace tokenmill::parallel {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kPageBytes = 4096;

/// Position of rank among the ranks other than `without`.
int index_without(int rank, int without) { return rank < without ? rank : rank - 1; }

/// A rank's part of the memory, in whole pages: the first to write a page, its owner, has it near.
int64_t segment_bytes(const ShmShape& shape, int size) {
  const int64_t bytes = lane_bytes(shape.collective) + (size - 1) * lane_bytes(shape.pair);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

/// In a rank's segment: its lane to all, then its lanes to each other rank.
std::byte* pair_lane(std::byte* segment, const ShmShape& shape, int from, int to) {
  return segment + lane_bytes(shape.collective) + index_without(to, from) * lane_bytes(shape.pair);
}

bool is_pair(TransferKind kind) { return kind == TransferKind::kSend || kind == TransferKind::kRecv; }

}  // namespace

ShmShape ShmShape::of_group(int size) {
  TM_ASSERT(size >= 2);
  const int64_t collective_slot = std::max<int64_t>(64 * 1024, size * kLineBytes);  // an exchange divides it
  const int64_t pair_budget = (int64_t{1} << 20) / (size - 1);
  const int64_t pair_slot = std::clamp<int64_t>(pair_budget / 8 / kPageBytes * kPageBytes, kPageBytes, 32 * 1024);
  return {
      .collective = {.num_readers = size - 1,
                     .num_slots = (int64_t{2} << 20) / collective_slot,
                     .slot_bytes = collective_slot},
      .pair = {
          .num_readers = 1, .num_slots = std::clamp<int64_t>(pair_budget / pair_slot, 4, 32), .slot_bytes = pair_slot}};
}

int64_t shm_window_bytes(int size) { return segment_bytes(ShmShape::of_group(size), size); }

ShmTransport::ShmTransport(const Comm& group, const ShmShape& shape)
    : rank_(group.rank()),
      size_(group.size()),
      shape_(shape),
      memory_(group, group.size() * segment_bytes(shape, group.size())) {
  TM_ASSERT(shape.collective.num_readers == size_ - 1 && shape.collective.slot_bytes >= size_ * kLineBytes);
  const auto segment = [&](int rank) { return memory_.bytes().data() + rank * segment_bytes(shape, size_); };
  std::byte* const mine = segment(rank_);
  outgoing_.push_back({LaneWriter(mine, shape.collective), {}});
  for (int other = 0; other < size_; ++other) {
    if (other == rank_) continue;
    outgoing_.push_back({LaneWriter(pair_lane(mine, shape, rank_, other), shape.pair), {}});
    std::byte* const theirs = segment(other);
    incoming_.push_back({LaneReader(theirs, shape.collective, index_without(rank_, other)), other, {}});
    incoming_.push_back({LaneReader(pair_lane(theirs, shape, other, rank_), shape.pair, 0), other, {}});
  }
}

/// Of each part in one slot: the parts of an exchange share it.
int64_t ShmTransport::piece_bytes(const Move& move) const {
  if (is_pair(move.kind)) return shape_.pair.slot_bytes;
  if (move.kind != TransferKind::kExchange) return shape_.collective.slot_bytes;
  return shape_.collective.slot_bytes / size_ / kLineBytes * kLineBytes;
}

void ShmTransport::start(Transfer transfer, const Move& move) {
  Pending& pending = pending_.add(transfer);
  pending = {.transfer = transfer, .move = move, .lanes_left = 0};
  for (Incoming& lane : incoming_) {
    const bool is_pair_lane = (&lane - incoming_.data()) % 2 == 1;
    if (is_pair(move.kind) != is_pair_lane || !move.receives_from(lane.from, rank_)) continue;
    lane.jobs.push_back({&pending});
    ++pending.lanes_left;
  }
  const bool sends = move.kind == TransferKind::kBroadcast ? move.peer == rank_ : move.kind != TransferKind::kRecv;
  if (!sends) return;
  Outgoing& lane =
      is_pair(move.kind) ? outgoing_[1 + static_cast<size_t>(index_without(move.peer, rank_))] : outgoing_[0];
  lane.jobs.push_back({&pending});
  ++pending.lanes_left;
  while (write_slot(lane)) {
  }
}

bool ShmTransport::write_slot(Outgoing& lane) {
  if (lane.jobs.empty()) return false;
  std::byte* slot = lane.writer.free_slot();
  if (slot == nullptr) return false;
  Job& job = lane.jobs.front();
  const Move& move = job.pending->move;
  const int64_t piece = piece_bytes(move);
  const auto bytes = static_cast<size_t>(std::min(piece, move.part_bytes - job.done_bytes));
  if (move.kind == TransferKind::kExchange) {
    for (int to = 0; to < size_; ++to)
      if (to != rank_) std::memcpy(slot + to * piece, move.sent_to(to) + job.done_bytes, bytes);
  } else {
    std::memcpy(slot, move.sent + job.done_bytes, bytes);
  }
  // A send and its recv carry one name.
  lane.writer.publish({.part_bytes = move.part_bytes, .begin = job.done_bytes, .kind = move.kind});
  job.done_bytes += static_cast<int64_t>(bytes);
  if (job.done_bytes == move.part_bytes) {
    --job.pending->lanes_left;
    lane.jobs.pop_front();
  }
  return true;
}

bool ShmTransport::read_slot(Incoming& lane) {
  if (lane.jobs.empty()) return false;
  const std::byte* slot = lane.reader.full_slot();
  if (slot == nullptr) return false;
  Job& job = lane.jobs.front();
  const Move& move = job.pending->move;
  const SlotLabel expected{.part_bytes = move.part_bytes,
                           .begin = job.done_bytes,
                           .kind = move.kind == TransferKind::kRecv ? TransferKind::kSend : move.kind};
  if (const SlotLabel& label = lane.reader.label(); label != expected)
    throw Error(ErrorKind::kInternal, "rank {} of {} waits for {} of {} bytes of rank {}, which sent {} of {} bytes",
                rank_, size_, to_string(expected.kind), expected.part_bytes, lane.from, to_string(label.kind),
                label.part_bytes);
  const int64_t piece = piece_bytes(move);
  const auto bytes = static_cast<size_t>(std::min(piece, move.part_bytes - job.done_bytes));
  const std::byte* mine = move.kind == TransferKind::kExchange ? slot + rank_ * piece : slot;
  std::memcpy(move.received_from(lane.from) + job.done_bytes, mine, bytes);
  lane.reader.release();
  job.done_bytes += static_cast<int64_t>(bytes);
  if (job.done_bytes == move.part_bytes) {
    --job.pending->lanes_left;
    lane.jobs.pop_front();
  }
  return true;
}

bool ShmTransport::progress() {
  // One slot of each lane in turn: the others read what this rank wrote while it writes or reads the next.
  bool moved = false;
  for (Outgoing& lane : outgoing_) moved = write_slot(lane) || moved;
  for (Incoming& lane : incoming_) moved = read_slot(lane) || moved;
  return moved;
}

bool ShmTransport::finished(Transfer transfer) {
  Pending& pending = pending_.at(transfer);
  if (pending.lanes_left > 0) return false;
  pending.transfer = 0;
  return true;
}

}  // namespace tokenmill::parallel
