#include "engine/models/row_parallel.h"

namespace tokenmill {

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
  return PartSum::num_elements(grid, max_tokens, hidden_size, sizeof(float));
}

Turns RowParallelLinear::two_turns(const ModelGrid& grid, int64_t num_tokens, int64_t hidden_size) {
  const int64_t first = num_tokens / 2 / grid.tp_size * grid.tp_size;
  const auto in_two = [&](int64_t tokens) {
    return PartSum::takes_two_transfers(grid.tp_size, grid.num_parts() / grid.tp_size, tokens * hidden_size * 4);
  };
  if (first == 0 || in_two(num_tokens) != in_two(first)) return {{0, num_tokens}};
  return {{0, first}, {first, num_tokens}};
}

RowParallelLinear::Pending RowParallelLinear::start(Ops& ops, parallel::Communicator& tp, TensorView x,
                                                    const Buffers& buffers) const {
  const int64_t num_tokens = x.rows(), hidden_size = buffers.block_out.cols();
  const auto num_own = static_cast<int64_t>(parts_.size());
  Pending pending{.num_tokens = num_tokens, .block_out = buffers.block_out, .sum = {}};
  if (num_own * tp.size() == 1) {
    ops.linear(buffers.block_out.slice_rows(0, num_tokens), x, *parts_[0], {.bias = bias_, .residual = {}});
    return pending;
  }
  pending.sum.emplace(tp, buffers.parts, num_own, num_tokens, hidden_size);
  for (int64_t i = 0; i < num_own; ++i) {
    const Range columns = columns_[static_cast<size_t>(i)];
    ops.linear(pending.sum->own(i), x.slice_cols(columns.begin, columns.size()), *parts_[static_cast<size_t>(i)]);
  }
  pending.sum->start(tp);
  return pending;
}

void RowParallelLinear::finish(Ops& ops, parallel::Communicator& tp, const Pending& pending, TensorView hidden,
                               TensorView normed, TensorView norm, float eps) const {
  if (pending.sum && pending.sum->in_one_transfer() && norm.defined()) {
    ops.add_parts_rms_norm(normed, hidden, pending.sum->wait_parts(tp), bias_, norm, eps);
    return;
  }
  const TensorView block_out = pending.sum ? pending.sum->finish(ops, tp, pending.block_out, bias_)
                                           : pending.block_out.slice_rows(0, pending.num_tokens);
  if (norm.defined()) {
    ops.add_rms_norm(normed, hidden, block_out, norm, eps);
  } else {
    ops.add(hidden, block_out);
  }
}

}  // namespace tokenmill
