#include "app/bench/figures.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "jobs/report.h"

namespace tokenmill::app {
namespace {

using io::JsonValue;
using Members = std::vector<JsonValue::Member>;

JsonValue count(int64_t value) { return JsonValue::number(value); }

/// All replicas together.
struct Sums : Measured {
  double busy_s = 0;     // sum of the replicas' seconds
  double first_end = 0;  // when the first replica had no more requests to take
};

Sums sum_of(const std::vector<Measured>& all) {
  Sums sum;
  for (const Measured& m : all) {
    const double end = m.seconds - m.tail_s;
    sum.first_end = &m == all.data() ? end : std::min(sum.first_end, end);
    sum.seconds = std::max(sum.seconds, m.seconds);
    sum.busy_s += m.seconds;
    sum.input_tokens += m.input_tokens;
    sum.computed_input_tokens += m.computed_input_tokens;
    sum.output_tokens += m.output_tokens;
    sum.steps += m.steps;
    sum.sum_running += m.sum_running;
    sum.preemptions += m.preemptions;
    sum.recomputed_tokens += m.recomputed_tokens;
    sum.prefix_queries += m.prefix_queries;
    sum.prefix_hits += m.prefix_hits;
    sum.shared_blocks += m.shared_blocks;
    sum.kv_peak = std::max(sum.kv_peak, m.kv_peak);
    sum.kv_waste += m.kv_waste;
    sum.times.device_s += m.times.device_s;
    sum.times.host_stall_s += m.times.host_stall_s;
  }
  return sum;
}

void add_latency(Members& out, const std::string& name, const Histogram& h) {
  const auto ms = [](double seconds) { return figure(seconds * 1e3); };
  out.emplace_back("mean_" + name + "_ms", ms(h.mean()));
  out.emplace_back("median_" + name + "_ms", ms(h.quantile(0.5)));
  out.emplace_back("std_" + name + "_ms", ms(h.standard_deviation()));
  out.emplace_back("p90_" + name + "_ms", ms(h.quantile(0.9)));
  out.emplace_back("p95_" + name + "_ms", ms(h.quantile(0.95)));
  out.emplace_back("p99_" + name + "_ms", ms(h.quantile(0.99)));
}

constexpr std::array<const char*, 5> kSampled = {"elapsed_time", "requests_per_second", "tokens_per_second",
                                                 "output_tokens_per_second", "input_tokens_per_second"};

const JsonValue& member(const Members& members, std::string_view name) {
  return std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.first == name; })->second;
}

/// values: not empty.
JsonValue spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  for (const double v : values) squares += (v - sum / count) * (v - sum / count);
  const size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return JsonValue::object({{"min", figure(values.front())},
                            {"median", figure(median)},
                            {"max", figure(values.back())},
                            {"stddev", figure(values.size() > 1 ? std::sqrt(squares / (count - 1)) : 0)}});
}

}  // namespace

JsonValue figure(double value) { return std::isfinite(value) ? JsonValue::number(jobs::rounded(value)) : JsonValue(); }

Measured measured_between(const EngineStats& before, const EngineStats& after) {
  const double blocks = static_cast<double>(std::max<int64_t>(1, after.kv_blocks_total));
  return {.input_tokens = after.num_prompt_tokens - before.num_prompt_tokens,
          .computed_input_tokens = after.num_computed_prompt_tokens - before.num_computed_prompt_tokens,
          .output_tokens = after.num_generation_tokens - before.num_generation_tokens,
          .steps = after.num_steps - before.num_steps,
          .sum_running = after.sum_running - before.sum_running,
          .preemptions = after.num_preemptions - before.num_preemptions,
          .recomputed_tokens = after.num_recomputed_tokens - before.num_recomputed_tokens,
          .prefix_queries = after.prefix_cache_queries - before.prefix_cache_queries,
          .prefix_hits = after.prefix_cache_hits - before.prefix_cache_hits,
          .shared_blocks = after.sum_kv_shared_blocks - before.sum_kv_shared_blocks,
          .kv_peak = static_cast<double>(after.kv_blocks_used_peak) / blocks,
          .kv_waste = after.sum_kv_waste - before.sum_kv_waste,
          .times = {.device_s = after.times.device_s - before.times.device_s,
                    .host_stall_s = after.times.host_stall_s - before.times.host_stall_s}};
}

Members bench_figures(int64_t num_requests, int num_ranks, const std::vector<Measured>& all,
                      const Distributions& distributions) {
  const Sums sum = sum_of(all);
  const double replicas = static_cast<double>(all.size());
  const auto rate = [&](int64_t amount) { return figure(static_cast<double>(amount) / sum.seconds); };
  const auto per_step = [&](double total) {
    return figure(total / static_cast<double>(std::max<int64_t>(1, sum.steps)));
  };
  const int64_t tokens = sum.input_tokens + sum.output_tokens;
  Members out = {
      {"elapsed_time", figure(sum.seconds)},
      {"duration", figure(sum.seconds)},
      {"num_requests", count(num_requests)},
      {"completed", count(num_requests)},
      {"failed", count(0)},
      {"total_input_tokens", count(sum.input_tokens)},
      {"total_output_tokens", count(sum.output_tokens)},
      {"total_num_tokens", count(tokens)},
      {"cached_input_tokens", count(sum.prefix_hits)},
      {"requests_per_second", rate(num_requests)},
      {"request_throughput", rate(num_requests)},
      {"tokens_per_second", rate(tokens)},
      {"total_token_throughput", rate(tokens)},
      {"output_tokens_per_second", rate(sum.output_tokens)},
      {"output_throughput", rate(sum.output_tokens)},
      {"input_tokens_per_second", rate(sum.input_tokens)},
      {"output_tokens_per_second_per_rank", figure(static_cast<double>(sum.output_tokens) / sum.seconds / num_ranks)}};
  add_latency(out, "ttft", distributions.ttft_s);
  add_latency(out, "tpot", distributions.tpot_s);
  add_latency(out, "itl", distributions.itl_s);
  add_latency(out, "e2el", distributions.e2e_s);
  const Members rest = {
      {"num_preemptions", count(sum.preemptions)},
      {"recomputed_tokens", count(sum.recomputed_tokens)},
      {"prefix_cache_hit_rate",
       figure(static_cast<double>(sum.prefix_hits) / static_cast<double>(std::max<int64_t>(1, sum.prefix_queries)))},
      {"kv_cache_usage_peak", figure(sum.kv_peak)},
      {"kv_waste", per_step(sum.kv_waste)},
      {"kv_shared_blocks", per_step(static_cast<double>(sum.shared_blocks))},
      {"mean_running", per_step(static_cast<double>(sum.sum_running))},
      {"device_seconds", figure(sum.times.device_s)},
      {"host_stall_seconds", figure(sum.times.host_stall_s)},
      {"tail_seconds", figure(sum.seconds - sum.first_end)},
      {"dp_imbalance", figure(sum.seconds * replicas / sum.busy_s)},
      {"mlperf", JsonValue::object(
                     {{"samples_per_second", rate(num_requests)}, {"tokens_per_second", rate(sum.output_tokens)}})}};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

Members repetition_figures(std::vector<Members> repetitions) {
  std::vector<JsonValue> samples;
  Members spreads;
  for (const char* name : kSampled) {
    std::vector<double> values;
    values.reserve(repetitions.size());
    for (const Members& repetition : repetitions) values.push_back(member(repetition, name).as_double());
    spreads.emplace_back(name, spread_of(std::move(values)));
  }
  for (const Members& repetition : repetitions) {
    Members sample;
    for (const char* name : kSampled) sample.emplace_back(name, member(repetition, name));
    samples.push_back(JsonValue::object(std::move(sample)));
  }
  const auto middle = repetitions.begin() + static_cast<std::ptrdiff_t>((repetitions.size() - 1) / 2);
  std::nth_element(repetitions.begin(), middle, repetitions.end(), [](const Members& a, const Members& b) {
    return member(a, "elapsed_time").as_double() < member(b, "elapsed_time").as_double();
  });
  Members out = std::move(*middle);
  out.emplace_back("samples", JsonValue::array(std::move(samples)));
  out.emplace_back("spread", JsonValue::object(std::move(spreads)));
  return out;
}

}  // namespace tokenmill::app
