#include "engine/models/row_parallel.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill {
namespace {

// Sums of more bytes go in two transfers when more than two ranks share them: with two, one transfer moves as much.
constexpr int64_t kMaxOneTransferBytes = int64_t{256} << 10;

bool takes_two_transfers(int tp_size, size_t num_own_parts, int64_t num_tokens, int64_t hidden_size) {
  return tp_size > 2 && num_own_parts == 1 && num_tokens * hidden_size * 4 > kMaxOneTransferBytes;
}

int64_t share_of(int64_t num_tokens, int tp_size) { return (num_tokens + tp_size - 1) / tp_size; }

TensorView shaped(TensorView flat, std::initializer_list<int64_t> shape, int64_t offset = 0) {
  return TensorView(static_cast<char*>(flat.data()) + offset * dtype_size(flat.dtype()), flat.dtype(), shape,
                    flat.is_host());
}

}  // namespace

void RowParallelLinear::register_weights(WeightBuilder& builder, const std::string& name, int64_t in_features,
                                         const std::vector<Range>& inputs, int64_t out_features, bool has_bias) {
  parts_.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    builder.linear(parts_[i], {whole_tensor(name + ".weight", out_features)}, in_features, inputs[i]);
    columns_.push_back({inputs[i].begin - inputs[0].begin, inputs[i].end - inputs[0].begin});
  }
  if (has_bias) builder.vector(bias_, {whole_tensor(name + ".bias", out_features)});
}

int64_t RowParallelLinear::part_floats(const ModelGrid& grid, int64_t max_tokens, int64_t hidden_size) {
  const int64_t num_parts = grid.num_parts();
  if (num_parts == 1) return 0;
  const auto own_parts = static_cast<size_t>(num_parts / grid.tp_size);
  if (!takes_two_transfers(grid.tp_size, own_parts, max_tokens, hidden_size)) return num_parts * max_tokens * hidden_size;
  const int64_t most_in_one = kMaxOneTransferBytes / (4 * hidden_size);
  return std::max(num_parts * most_in_one * hidden_size, 2 * (max_tokens + 2 * grid.tp_size) * hidden_size);
}

Turns RowParallelLinear::two_turns(const ModelGrid& grid, int64_t num_tokens, int64_t hidden_size) {
  const int64_t first = num_tokens / 2 / grid.tp_size * grid.tp_size;
  const auto own_parts = static_cast<size_t>(grid.num_parts() / grid.tp_size);
  const bool same_kind = takes_two_transfers(grid.tp_size, own_parts, num_tokens, hidden_size) ==
                         takes_two_transfers(grid.tp_size, own_parts, first, hidden_size);
  if (first == 0 || !same_kind) return {{0, num_tokens}};
  return {{0, first}, {first, num_tokens}};
}

RowParallelLinear::Pending RowParallelLinear::start(Ops& ops, parallel::Communicator& tp, TensorView x,
                                                    const Buffers& buffers) const {
  const int64_t num_tokens = x.rows(), hidden_size = buffers.block_out.cols();
  const auto own = static_cast<int64_t>(parts_.size());
  Pending pending{.num_tokens = num_tokens, .block_out = buffers.block_out};
  if (own * tp.size() == 1) {
    ops.linear(buffers.block_out.slice_rows(0, num_tokens), x, *parts_[0], {.bias = bias_, .residual = {}});
    return pending;
  }
  const auto check_room = [&](int64_t num_floats) {
    TM_ASSERT(buffers.parts.num_elements() >= num_floats, "the parts of {} tokens need {} values, there are {}",
              num_tokens, num_floats, buffers.parts.num_elements());
  };
  if (takes_two_transfers(tp.size(), parts_.size(), num_tokens, hidden_size)) {
    const int64_t share = share_of(num_tokens, tp.size());
    check_room(2 * tp.size() * share * hidden_size);
    const TensorView sent = shaped(buffers.parts, {tp.size(), share, hidden_size});
    pending.kind = Pending::Kind::kTwoTransfers;
    pending.parts = shaped(buffers.parts, {tp.size(), share, hidden_size}, tp.size() * share * hidden_size);
    ops.linear(shaped(buffers.parts, {num_tokens, hidden_size}), x, *parts_[0]);
    pending.transfer = tp.exchange(pending.parts, sent);
    return pending;
  }
  check_room(tp.size() * own * num_tokens * hidden_size);
  pending.kind = Pending::Kind::kOneTransfer;
  pending.parts = shaped(buffers.parts, {tp.size() * own, num_tokens, hidden_size});
  const int64_t first = tp.rank() * own * num_tokens * hidden_size;
  for (int64_t i = 0; i < own; ++i) {
    const Range columns = columns_[static_cast<size_t>(i)];
    ops.linear(shaped(buffers.parts, {num_tokens, hidden_size}, first + i * num_tokens * hidden_size),
               x.slice_cols(columns.begin, columns.size()), *parts_[static_cast<size_t>(i)]);
  }
  pending.transfer = tp.all_gather(shaped(buffers.parts, {tp.size(), own * num_tokens, hidden_size}),
                                   shaped(buffers.parts, {own * num_tokens, hidden_size}, first));
  return pending;
}

void RowParallelLinear::finish(Ops& ops, parallel::Communicator& tp, const Pending& pending, TensorView hidden,
                               TensorView normed, TensorView norm, float eps) const {
  if (pending.kind != Pending::Kind::kLocal) tp.wait(pending.transfer);
  if (pending.kind == Pending::Kind::kOneTransfer && norm.defined()) {
    ops.add_parts_rms_norm(normed, hidden, pending.parts, bias_, norm, eps);
    return;
  }
  const TensorView block_out = pending.block_out.slice_rows(0, pending.num_tokens);
  if (pending.kind == Pending::Kind::kOneTransfer) {
    ops.sum_parts(block_out, pending.parts, bias_);
  } else if (pending.kind == Pending::Kind::kTwoTransfers) {
    const int64_t share = pending.parts.size(1), hidden_size = pending.parts.size(2);
    const TensorView sums = shaped(pending.block_out, {tp.size(), share, hidden_size});
    const TensorView own = shaped(pending.block_out, {share, hidden_size}, tp.rank() * share * hidden_size);
    ops.sum_parts(own, pending.parts, bias_);
    tp.wait(tp.all_gather(sums, own));
  }
  if (norm.defined()) {
    ops.add_rms_norm(normed, hidden, block_out, norm, eps);
  } else {
    ops.add(hidden, block_out);
  }
}

}  // namespace tokenmill
