#pragma once
#include <string>
#include <vector>

#include "engine/engine.h"
#include "io/json.h"

namespace tokenmill::app {

/// What one replica measured.
struct Measured {
  double seconds = 0;  ///< from the common start to its last request
  double tail_s = 0;   ///< of these: since it had no more requests to take
  int64_t input_tokens = 0, computed_input_tokens = 0, output_tokens = 0, steps = 0, sum_running = 0;
  int64_t preemptions = 0, recomputed_tokens = 0, prefix_queries = 0, prefix_hits = 0, shared_blocks = 0;
  double kv_peak = 0, kv_waste = 0;  ///< waste: summed over steps
  StepTimes times;
};

/// The difference between two readings of one engine's counters.
Measured measured_between(const EngineStats& before, const EngineStats& after);

/// Figures of the measured part as JSON members: totals, rates (requests_per_second, request_throughput, ...; both
/// vllm bench throughput's and vllm bench serve's names), latencies (mean, median, std, p90, p95, p99 of ttft, tpot,
/// itl and e2el in ms), caches, stalls, tail and imbalance. all: by replica; distributions: of all replicas.
std::vector<io::JsonValue::Member> bench_figures(int64_t num_requests, int num_ranks, const std::vector<Measured>& all,
                                                 const Distributions& distributions);

/// Figures of the repetitions of one load: all of the one of median elapsed_time (the shorter of two in the middle),
/// then `samples` (elapsed_time and rates of each, in order) and `spread` (of each of these: min, median, max, stddev).
std::vector<io::JsonValue::Member> repetition_figures(std::vector<std::vector<io::JsonValue::Member>> repetitions);

/// Six significant digits; null for NaN and infinity.
io::JsonValue figure(double value);

}  // namespace tokenmill::app
