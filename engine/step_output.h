#pragma once
#include <cstdint>
#include <vector>

#include "engine/models/decoder.h"
#include "engine/runner.h"
#include "kernels/ops.h"

namespace tokenmill {

/// How much of the output of one step is used.
struct StepOutputShape {
  int64_t num_rows = 0;  ///< sampled
  int64_t num_scored = 0;     ///< rows
  int64_t num_logprobs = -1;  ///< the most that a sampled row reports; -1: no row reports any
  int64_t num_prompt_logprobs = -1;  ///< the most that a scored row reports
  int64_t list_width = 0;            ///< of the longest list of a scored row
};

/// What a step brings back: chosen tokens, and logprobs where they are wanted. In fixed device buffers, which are those
/// of the step that runs, with a host twin for each step in flight (`flight`, below max_steps_in_flight).
class StepOutput {
 public:
  StepOutput(Ops& ops, const RunnerLimits& limits);
  /// Device memory that it takes, and as much on the host for each step in flight.
  static int64_t device_bytes(const RunnerLimits& limits);

  /// The views that a step of this shape fills.
  HeadOutput device(const StepOutputShape& shape) const { return views(shape, device_); }
  /// Enqueues the copies to the host; sampled() and scored() may be called when they are done.
  void fetch(const StepOutputShape& shape, int flight = 0);
  /// Sampled row, with num_logprobs others (-1: neither rank nor others).
  SampledToken sampled(const StepOutputShape& shape, int flight, int64_t row, int64_t num_logprobs) const;
  /// Scored row of the prompt token token_id.
  SampledToken scored(const StepOutputShape& shape, int flight, int64_t row, int32_t token_id,
                      int64_t num_logprobs) const;

 private:
  /// Byte offsets of the arrays, the same on both sides.
  struct Layout {
    int64_t token_ids, logprobs, status, sampled_logprobs, sampled_ranks, sampled_status, sampled_top, scored_logprobs,
        scored_ranks, scored_status, scored_top, num_bytes;
    int64_t max_sampled_top, max_scored_top;  ///< entries of each of the three arrays of a *_top
  };
  static Layout layout(const RunnerLimits& limits);
  HeadOutput views(const StepOutputShape& shape, const Buffer& buffer) const;

  Ops& ops_;
  Layout layout_;
  std::vector<Buffer> host_;  // by flight
  Buffer device_;
  std::vector<CopyPiece> pieces_;  // reused
};

}  // namespace tokenmill
