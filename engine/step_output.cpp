#include "engine/step_output.h"

#include <algorithm>

#include "engine/carver.h"
#include "kernels/core/check.h"

namespace tokenmill {

StepOutput::Layout StepOutput::layout(const RunnerLimits& limits) {
  Layout at{};
  const auto take = [&](int64_t count) {
    const int64_t offset = at.num_bytes;
    at.num_bytes += carved_bytes(count * 4);
    return offset;
  };
  const int64_t rows = limits.max_logits_rows, scored = limits.max_scored_rows;
  at.token_ids = take(rows);
  at.logprobs = take(rows);
  at.status = take(rows);
  at.sampled_logprobs = take(rows);
  at.sampled_ranks = take(rows);
  at.sampled_status = take(rows);
  at.max_sampled_top = rows * std::max(limits.max_logprobs, kMaxLogprobTokenIds);
  at.sampled_top = take(3 * at.max_sampled_top);
  at.scored_logprobs = take(scored);
  at.scored_ranks = take(scored);
  at.scored_status = take(scored);
  at.max_scored_top = scored * limits.max_logprobs;
  at.scored_top = take(3 * at.max_scored_top);
  return at;
}

int64_t StepOutput::device_bytes(const RunnerLimits& limits) { return layout(limits).num_bytes; }

StepOutput::StepOutput(Ops& ops, const RunnerLimits& limits)
    : ops_(ops),
      layout_(layout(limits)),
      device_(ops.memory().allocate(layout_.num_bytes)) {
  for (int i = 0; i < limits.max_steps_in_flight; ++i)
    host_.push_back(ops.memory().allocate_host(layout_.num_bytes));
}

HeadOutput StepOutput::views(const StepOutputShape& shape, const Buffer& buffer) const {
  auto* base = static_cast<char*>(buffer.data());
  const bool is_host = ops_.device().kind == DeviceKind::kCpu || &buffer != &device_;
  const auto vector = [&](int64_t offset, DType dtype, int64_t count) {
    return TensorView(base + offset, dtype, {count}, is_host);
  };
  const auto matrix = [&](int64_t offset, DType dtype, int64_t rows, int64_t width) {
    return TensorView(base + offset, dtype, {rows, width}, is_host);
  };
  HeadOutput out;
  out.picked = {vector(layout_.token_ids, DType::kI32, shape.num_rows),
                vector(layout_.logprobs, DType::kF32, shape.num_rows),
                vector(layout_.status, DType::kI32, shape.num_rows)};
  const int64_t width = std::max<int64_t>(0, shape.num_logprobs);
  const int64_t prompt_width = std::max<int64_t>(0, shape.num_prompt_logprobs);
  TM_ASSERT(
      shape.num_rows * width <= layout_.max_sampled_top && shape.num_scored * prompt_width <= layout_.max_scored_top,
      "{} rows with {} logprobs and {} prompt tokens with {} exceed the runner's limits", shape.num_rows, width,
      shape.num_scored, prompt_width);
  const int64_t array = layout_.max_sampled_top * 4, prompt_array = layout_.max_scored_top * 4;
  out.sampled = {vector(layout_.sampled_logprobs, DType::kF32, shape.num_rows),
                 vector(layout_.sampled_ranks, DType::kI32, shape.num_rows),
                 vector(layout_.sampled_status, DType::kI32, shape.num_rows),
                 matrix(layout_.sampled_top, DType::kI32, shape.num_rows, width),
                 matrix(layout_.sampled_top + array, DType::kF32, shape.num_rows, width),
                 matrix(layout_.sampled_top + 2 * array, DType::kI32, shape.num_rows, width)};
  out.scored = {vector(layout_.scored_logprobs, DType::kF32, shape.num_scored),
                vector(layout_.scored_ranks, DType::kI32, shape.num_scored),
                vector(layout_.scored_status, DType::kI32, shape.num_scored),
                matrix(layout_.scored_top, DType::kI32, shape.num_scored, prompt_width),
                matrix(layout_.scored_top + prompt_array, DType::kF32, shape.num_scored, prompt_width),
                matrix(layout_.scored_top + 2 * prompt_array, DType::kI32, shape.num_scored, prompt_width)};
  return out;
}

void StepOutput::fetch(const StepOutputShape& shape, int flight) {
  const HeadOutput out = device(shape);
  const Buffer& host = host_.at(static_cast<size_t>(flight));
  pieces_.clear();
  const auto add = [&](std::initializer_list<TensorView> views) {
    for (const TensorView& view : views) {
      const int64_t offset = static_cast<const char*>(view.data()) - static_cast<const char*>(device_.data());
      pieces_.push_back({static_cast<char*>(host.data()) + offset, view.data(), view.num_bytes()});
    }
  };
  const auto add_all = [&](const LogprobResult& r) {
    add({r.logprobs, r.ranks, r.status, r.top_ids, r.top_logprobs, r.top_ranks});
  };
  add({out.picked.token_ids, out.picked.logprobs, out.picked.status});
  if (shape.num_logprobs >= 0) add_all(out.sampled);
  if (shape.num_scored > 0) add_all(out.scored);
  ops_.copy_pieces(pieces_);
}

namespace {

void add_logprobs(const LogprobResult& result, int64_t row, int64_t num_logprobs, SampledToken& token) {
  token.rank = result.ranks.as<int32_t>()[row];
  token.top.reserve(static_cast<size_t>(num_logprobs));
  for (int64_t i = 0; i < num_logprobs; ++i) {
    token.top.push_back({result.top_ids.row<int32_t>(row)[i], result.top_logprobs.row<float>(row)[i],
                         result.top_ranks.row<int32_t>(row)[i]});
  }
}

}  // namespace

SampledToken StepOutput::sampled(const StepOutputShape& shape, int flight, int64_t row, int64_t num_logprobs) const {
  const HeadOutput out = views(shape, host_.at(static_cast<size_t>(flight)));
  SampledToken token;
  token.token_id = out.picked.token_ids.as<int32_t>()[row];
  token.logprob = out.picked.logprobs.as<float>()[row];
  token.status = static_cast<SampleStatus>(out.picked.status.as<int32_t>()[row]);
  if (num_logprobs >= 0 && token.status == SampleStatus::kFine) add_logprobs(out.sampled, row, num_logprobs, token);
  return token;
}

SampledToken StepOutput::scored(const StepOutputShape& shape, int flight, int64_t row, int32_t token_id,
                                int64_t num_logprobs) const {
  const HeadOutput out = views(shape, host_.at(static_cast<size_t>(flight)));
  SampledToken token;
  token.token_id = token_id;
  token.status = static_cast<SampleStatus>(out.scored.status.as<int32_t>()[row]);
  if (token.status != SampleStatus::kFine) return token;
  token.logprob = out.scored.logprobs.as<float>()[row];
  add_logprobs(out.scored, row, num_logprobs, token);
  return token;
}

}  // namespace tokenmill
