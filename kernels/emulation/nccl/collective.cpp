#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "kernels/emulation/nccl/communicator.h"

namespace tokenmill::emulation {
namespace {

template <typename T>
struct Accumulator {
  using Type = T;
  static Type widen(T value) { return value; }
  static T round(Type value) { return value; }
};
template <>
struct Accumulator<__nv_bfloat16> {
  using Type = float;
  static float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __nv_bfloat16 round(float value) { return __float2bfloat16(value); }
};
template <>
struct Accumulator<__half> {
  using Type = float;
  static float widen(__half value) { return __half2float(value); }
  static __half round(float value) { return __float2half(value); }
};

template <typename T>
T combine(ncclRedOp_t reduction, T a, T b) {
  switch (reduction) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return std::max(a, b);
    case ncclMin:
      return std::min(a, b);
    default:
      return a + b;  // ncclSum, ncclAvg
  }
}

/// out[i] = the reduction of every rank's slot, in rank order.
template <typename T>
void reduce_slots(Meeting& meeting, ncclRedOp_t reduction, size_t count, void* out) {
  using A = Accumulator<T>;
  const auto at = [&](int rank, size_t i) {
    T value;
    std::memcpy(&value, meeting.region().slots[rank] + i * sizeof(T), sizeof value);
    return A::widen(value);
  };
  for (size_t i = 0; i < count; ++i) {
    typename A::Type sum = at(0, i);
    for (int rank = 1; rank < meeting.num_ranks(); ++rank) sum = combine(reduction, sum, at(rank, i));
    if (reduction == ncclAvg) sum = static_cast<typename A::Type>(sum / meeting.num_ranks());
    const T result = A::round(sum);
    std::memcpy(static_cast<char*>(out) + i * sizeof(T), &result, sizeof result);
  }
}

void reduce_slots(Meeting& meeting, ncclDataType_t type, ncclRedOp_t reduction, size_t count, void* out) {
  switch (type) {
    case ncclFloat32:
      return reduce_slots<float>(meeting, reduction, count, out);
    case ncclFloat64:
      return reduce_slots<double>(meeting, reduction, count, out);
    case ncclFloat16:
      return reduce_slots<__half>(meeting, reduction, count, out);
    case ncclBfloat16:
      return reduce_slots<__nv_bfloat16>(meeting, reduction, count, out);
    case ncclInt8:
      return reduce_slots<int8_t>(meeting, reduction, count, out);
    case ncclUint8:
      return reduce_slots<uint8_t>(meeting, reduction, count, out);
    case ncclInt32:
      return reduce_slots<int32_t>(meeting, reduction, count, out);
    case ncclUint32:
      return reduce_slots<uint32_t>(meeting, reduction, count, out);
    case ncclInt64:
      return reduce_slots<int64_t>(meeting, reduction, count, out);
    default:
      return reduce_slots<uint64_t>(meeting, reduction, count, out);
  }
}

const char* name_of(Collective::Kind kind) {
  switch (kind) {
    case Collective::Kind::kAllReduce:
      return "AllReduce";
    case Collective::Kind::kAllGather:
      return "AllGather";
    case Collective::Kind::kReduceScatter:
      return "ReduceScatter";
    case Collective::Kind::kBroadcast:
      return "Broadcast";
  }
  return "";
}

Announcement announcement_of(const Collective& collective) {
  Announcement announcement;
  std::strncpy(announcement.call, name_of(collective.kind), sizeof announcement.call - 1);
  announcement.count = collective.count;
  announcement.type = collective.type;
  announcement.reduction = collective.reduction;
  announcement.root = collective.root;
  return announcement;
}

std::string to_string(const Announcement& announcement) {
  return fmt::format("nccl{}(count {}, type {}, reduction {}, root {})", announcement.call, announcement.count,
                     announcement.type, announcement.reduction, announcement.root);
}

/// One collective on its way: fill(offset, bytes) puts a piece of this rank's data into its slot, take uses all slots.
class Turns {
 public:
  Turns(Communicator& communicator, const Collective& collective)
      : meeting_(*communicator.meeting), communicator_(communicator), collective_(collective) {}

  using Piece = std::function<void(size_t offset, size_t num_bytes)>;
  /// False when the collective ended early.
  bool run(size_t num_bytes, const Piece& fill, const Piece& take) {
    const size_t element = num_bytes_of(collective_.type), step = kSlotBytes / element * element;
    for (size_t offset = 0; offset < num_bytes; offset += step) {
      const size_t piece = std::min(step, num_bytes - offset);
      fill(offset, piece);
      meeting_.region().announced[meeting_.rank()] = announcement_of(collective_);
      if (!meeting_.barrier(meeting_.region().streams)) return end_early();
      if (!agree()) return false;
      take(offset, piece);
      if (!meeting_.barrier(meeting_.region().streams)) return end_early();
    }
    return true;
  }
  Status status;

 private:
  bool end_early() {
    communicator_.async_error = ncclRemoteError;
    return false;
  }
  bool agree() {
    const Announcement first = meeting_.region().announced[0];
    for (int rank = 1; rank < meeting_.num_ranks(); ++rank) {
      const Announcement other = meeting_.region().announced[rank];
      if (other == first) continue;
      status = {cudaErrorLaunchFailure,
                fmt::format("rank {} calls {} where rank 0 calls {}", rank, to_string(other), to_string(first))};
      communicator_.async_error = ncclInvalidUsage;
      return false;
    }
    return true;
  }
  Meeting& meeting_;
  Communicator& communicator_;
  const Collective& collective_;
};

/// Bytes that the call reads and writes on this rank.
struct Extent {
  size_t sent, received;
};
Extent extent_of(const Collective& collective, size_t num_ranks, bool is_root) {
  const size_t share = collective.count * num_bytes_of(collective.type);
  switch (collective.kind) {
    case Collective::Kind::kAllGather:
      return {share, share * num_ranks};
    case Collective::Kind::kReduceScatter:
      return {share * num_ranks, share};
    case Collective::Kind::kBroadcast:
      return {is_root ? share : 0, share};
    case Collective::Kind::kAllReduce:
      break;
  }
  return {share, share};
}

}  // namespace

size_t num_bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

Status run_collective(Communicator& communicator, const Collective& collective) {
  if (communicator.async_error != ncclSuccess) return {};
  Meeting& meeting = *communicator.meeting;
  const auto num_ranks = static_cast<size_t>(meeting.num_ranks());
  const bool is_root = meeting.rank() == collective.root;
  const Extent extent = extent_of(collective, num_ranks, is_root);
  if (!in_device_memory(collective.send, extent.sent) || !in_device_memory(collective.receive, extent.received)) {
    meeting.abort();
    return {cudaErrorIllegalAddress, fmt::format("{} bytes to send at {} and {} to receive at {} are not all in device "
                                                 "memory",
                                                 extent.sent, collective.send, extent.received, collective.receive)};
  }
  const auto* send = static_cast<const char*>(collective.send);
  auto* receive = static_cast<char*>(collective.receive);
  char* own_slot = meeting.region().slots[meeting.rank()];
  const size_t element = num_bytes_of(collective.type), share = collective.count * element;
  const auto fill_from = [&](const char* from) {
    return [=](size_t offset, size_t bytes) { std::memcpy(own_slot, from + offset, bytes); };
  };
  const auto reduce = [&](size_t offset, size_t bytes) {
    reduce_slots(meeting, collective.type, collective.reduction, bytes / element, receive + offset);
  };
  const auto nothing = [](size_t, size_t) {};
  Turns turns(communicator, collective);
  switch (collective.kind) {
    case Collective::Kind::kAllReduce:
      turns.run(share, fill_from(send), reduce);
      break;
    case Collective::Kind::kAllGather:
      turns.run(share, fill_from(send), [&](size_t offset, size_t bytes) {
        for (size_t rank = 0; rank < num_ranks; ++rank) {
          std::memcpy(receive + rank * share + offset, meeting.region().slots[rank], bytes);
        }
      });
      break;
    case Collective::Kind::kReduceScatter:
      for (size_t rank = 0; rank < num_ranks; ++rank) {
        const bool own = static_cast<int>(rank) == meeting.rank();
        const Turns::Piece take = own ? Turns::Piece(reduce) : Turns::Piece(nothing);
        if (!turns.run(share, fill_from(send + rank * share), take)) break;
      }
      break;
    case Collective::Kind::kBroadcast:
      turns.run(share, is_root ? Turns::Piece(fill_from(send)) : Turns::Piece(nothing),
                [&](size_t offset, size_t bytes) {
                  std::memcpy(receive + offset, meeting.region().slots[collective.root], bytes);
                });
      break;
  }
  return turns.status;
}

}  // namespace tokenmill::emulation
