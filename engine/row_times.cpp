#include "engine/row_times.h"

#include <algorithm>

namespace tokenmill {

RowTimes row_times(const RequestTiming& t, int64_t num_completion_tokens) {
  RowTimes out{.e2e_s = t.finished_s - t.pulled_s};
  if (!t.first_scheduled_s) return out;
  out.queue_s = *t.first_scheduled_s - t.pulled_s;
  if (!t.first_token_s) return out;
  out.prefill_s = *t.first_token_s - *t.first_scheduled_s;
  out.decode_s = t.last_token_s - *t.first_token_s;
  out.inference_s = t.last_token_s - *t.first_scheduled_s;
  out.ttft_s = *t.first_token_s - t.pulled_s;
  if (t.num_intervals > 0) {
    out.itl_mean_s = *out.decode_s / static_cast<double>(t.num_intervals);
    out.itl_max_s = t.max_interval_s;
  }
  if (num_completion_tokens > 1) out.tpot_s = *out.decode_s / static_cast<double>(num_completion_tokens - 1);
  return out;
}

void note_emission(RequestTiming& timing, double now_s, Histogram& itl_s) {
  if (!timing.first_token_s) {
    timing.first_token_s = now_s;
  } else if (now_s > timing.last_token_s) {  // else another token of the same step
    const double interval_s = now_s - timing.last_token_s;
    itl_s.add(interval_s);
    timing.max_interval_s = std::max(timing.max_interval_s, interval_s);
    ++timing.num_intervals;
  }
  timing.last_token_s = now_s;
}

void note_finished(const RequestOutput& output, Distributions& d) {
  if (output.error) return;
  const RowTimes times = row_times(output.timing, output.num_completion_tokens);
  const auto add = [](Histogram& histogram, const std::optional<double>& value) {
    if (value) histogram.add(*value);
  };
  add(d.queue_s, times.queue_s);
  add(d.prefill_s, times.prefill_s);
  add(d.decode_s, times.decode_s);
  add(d.inference_s, times.inference_s);
  add(d.ttft_s, times.ttft_s);
  add(d.tpot_s, times.tpot_s);
  d.e2e_s.add(times.e2e_s);
  d.prompt_tokens.add(static_cast<double>(output.num_prompt_tokens));
  d.generation_tokens.add(static_cast<double>(output.num_completion_tokens));
}

}  // namespace tokenmill
