#pragma once
#include <optional>

#include "engine/request.h"
#include "kernels/core/distributions.h"

namespace tokenmill {

/// Durations of one row in seconds, as engine/README.md defines them; empty where the row did not get that far.
struct RowTimes {
  std::optional<double> queue_s, prefill_s, decode_s, inference_s, ttft_s;
  std::optional<double> itl_mean_s, itl_max_s;  ///< rows with two emissions or more
  std::optional<double> tpot_s;                 ///< rows of two tokens or more
  double e2e_s = 0;
};
RowTimes row_times(const RequestTiming& timing, int64_t num_completion_tokens);

/// A token of a row comes out at now_s: sets its times, counts the interval to the step before.
void note_emission(RequestTiming& timing, double now_s, Histogram& itl_s);

/// Counts a finished row. Rows with errors are not counted.
void note_finished(const RequestOutput& output, Distributions& distributions);

}  // namespace tokenmill
