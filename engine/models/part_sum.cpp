#include "engine/models/part_sum.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

// Sums of larger parts go in two transfers when more than two ranks share them: with two, one transfer moves as much.
constexpr int64_t kMaxOneTransferBytes = int64_t{256} << 10;

}  // namespace

TensorView shaped(TensorView flat, std::initializer_list<int64_t> shape, int64_t offset) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  TM_ASSERT(offset + count <= flat.num_elements(), "{} has no room for {} elements from {} on", flat.describe(), count,
            offset);
  return TensorView(static_cast<char*>(flat.data()) + offset * dtype_size(flat.dtype()), flat.dtype(), shape,
                    flat.is_host());
}

bool PartSum::takes_two_transfers(int64_t num_ranks, int64_t num_own, int64_t part_bytes) {
  return num_ranks > 2 && num_own == 1 && part_bytes > kMaxOneTransferBytes;
}

int64_t PartSum::num_elements(const ModelGrid& grid, int64_t max_tokens, int64_t width, int64_t element_bytes) {
  const int64_t num_parts = grid.num_parts();
  if (num_parts == 1) return 0;
  const int64_t num_own = num_parts / grid.tp_size;
  if (!takes_two_transfers(grid.tp_size, num_own, max_tokens * width * element_bytes))
    return num_parts * max_tokens * width;
  const int64_t most_in_one = kMaxOneTransferBytes / (element_bytes * width);
  return std::max(num_parts * most_in_one * width, 2 * (max_tokens + 2 * grid.tp_size) * width);
}

PartSum::PartSum(const parallel::Communicator& tp, TensorView room, int64_t num_own, int64_t num_tokens, int64_t width)
    : rank_(tp.rank()),
      ranks_(tp.size()),
      num_own_(num_own),
      num_tokens_(num_tokens),
      width_(width),
      in_two_(takes_two_transfers(ranks_, num_own, num_tokens * width * dtype_size(room.dtype()))),
      share_((num_tokens + ranks_ - 1) / ranks_),
      room_(room) {}

TensorView PartSum::own(int64_t i) const {
  const int64_t part = in_two_ ? 0 : rank_ * num_own_ + i;
  return shaped(room_, {num_tokens_, width_}, part * num_tokens_ * width_);
}

void PartSum::start(parallel::Communicator& tp) {
  if (in_two_) {
    const int64_t count = ranks_ * share_ * width_;
    transfer_ = tp.exchange(shaped(room_, {ranks_, share_, width_}, count), shaped(room_, {ranks_, share_, width_}));
    return;
  }
  const int64_t rows = num_own_ * num_tokens_;
  transfer_ = tp.all_gather(shaped(room_, {ranks_, rows, width_}), shaped(room_, {rows, width_}, rank_ * rows * width_));
}

TensorView PartSum::wait_parts(parallel::Communicator& tp) const {
  TM_ASSERT(!in_two_, "no rank gets all parts in two transfers");
  tp.wait(transfer_);
  return shaped(room_, {ranks_ * num_own_, num_tokens_, width_});
}

TensorView PartSum::finish(Ops& ops, parallel::Communicator& tp, TensorView block, TensorView bias) const {
  const TensorView sums = block.slice_rows(0, num_tokens_);
  if (!in_two_) {
    ops.sum_parts(sums, wait_parts(tp), bias);
    return sums;
  }
  tp.wait(transfer_);
  const TensorView own = shaped(block, {share_, width_}, rank_ * share_ * width_);
  ops.sum_parts(own, shaped(room_, {ranks_, share_, width_}, ranks_ * share_ * width_), bias);
  tp.wait(tp.all_gather(shaped(block, {ranks_, share_, width_}), own));
  return sums;
}

}  // namespace tokenmill
