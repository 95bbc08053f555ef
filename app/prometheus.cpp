#include "app/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace tokenmill::app {
namespace {

// vLLM's buckets.
const std::vector<double> kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                                1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const std::vector<double> kTokenBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                           0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const std::vector<double> kRequestBuckets = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                             30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
const std::vector<double> kStepTokenBuckets = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

/// 1, 2, 5, 10, ... up to `longest`.
std::vector<double> token_buckets(int64_t longest) {
  std::vector<double> buckets;
  for (int64_t decade = 1;; decade *= 10)
    for (const int64_t digit : {1, 2, 5}) {
      if (digit * decade > longest) return buckets;
      buckets.push_back(static_cast<double>(digit * decade));
    }
}

std::string escaped(const std::string& label) {
  std::string out;
  for (const char c : label) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

class Writer {
 public:
  explicit Writer(const std::string& model_name) : labels_("model_name=\"" + escaped(model_name) + "\"") {}

  void begin(const char* name, const char* type, const char* help) {
    add("# HELP tokenmill:{0} {1}\n# TYPE tokenmill:{0} {2}\n", name, help, type);
  }
  template <typename T>
  void value(const char* name, T value, const std::string& more_labels = "") {
    add("tokenmill:{}{{{}{}}} {}\n", name, labels_, more_labels, value);
  }
  template <typename T>
  void gauge(const char* name, const char* help, T now) {
    begin(name, "gauge", help);
    value(name, now);
  }
  template <typename T>
  void counter(const char* name, const char* help, T count) {
    begin(name, "counter", help);
    value(name, count);
  }
  void histogram(const char* name, const char* help, const std::vector<double>& buckets, const Histogram& h) {
    begin(name, "histogram", help);
    for (const double bound : buckets)
      add("tokenmill:{}_bucket{{{},le=\"{}\"}} {}\n", name, labels_, bound, h.count_up_to(bound));
    add("tokenmill:{0}_bucket{{{1},le=\"+Inf\"}} {2}\ntokenmill:{0}_sum{{{1}}} {3}\ntokenmill:{0}_count{{{1}}} {2}\n",
        name, labels_, h.count(), h.sum());
  }
  std::string take() { return std::move(out_); }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }
  std::string labels_, out_;
};

void add_engine(Writer& w, const jobs::JobMetrics& m) {
  const jobs::GeneratorStats& s = m.stats;
  const auto steps = static_cast<double>(std::max<int64_t>(1, s.steps));
  w.gauge("num_requests_running", "Rows in execution, all replicas.", s.running_now);
  w.gauge("num_requests_waiting", "Rows waiting on replicas.", s.waiting_now);
  w.gauge("kv_cache_usage_perc", "KV cache usage, mean over replicas; 1 is full.",
          m.num_replicas > 0 ? s.kv_usage_now / static_cast<double>(m.num_replicas) : 0.0);
  w.gauge("kv_cache_usage_peak_perc", "Highest KV cache usage of a replica so far.", s.kv_usage_peak);
  w.gauge("kv_waste_perc", "Share of the slots in allocated KV blocks that hold nothing, mean over steps.",
          s.sum_kv_waste / steps);
  w.gauge("kv_shared_blocks", "KV blocks that sharing saves, mean over steps.",
          static_cast<double>(s.sum_kv_shared_blocks) / steps);
  w.counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", s.prefix_cache_queries);
  w.counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", s.prefix_cache_hits);
  w.counter("prompt_tokens_cached_total", "Prompt tokens that were not computed because they were cached.",
            s.prefix_cache_hits);
  w.counter("num_preemptions_total", "Rows taken back for want of KV blocks.", s.preemptions);
  w.counter("recomputed_tokens_total", "Tokens computed again after a preemption.", s.recomputed_tokens);
  w.counter("prompt_tokens_total", "Prompt tokens processed.", s.prompt_tokens);
  w.counter("generation_tokens_total", "Tokens generated.", s.generation_tokens);
  w.counter("device_seconds_total", "Time with a step in flight, all replicas.", s.device_s);
  w.counter("host_stall_seconds_total", "Time in which a device waited for the host with work at hand, all replicas.",
            s.host_stall_s);
  w.counter("starved_seconds_total", "Time in which a device had no row, all replicas.", s.starved_s);
}

void add_rows(Writer& w, const jobs::JobMetrics& m) {
  w.gauge("rows", "Rows of the job.", m.rows_total);
  w.begin("rows_finished_total", "counter", "Rows finished, by outcome.");
  w.value("rows_finished_total", m.rows_done - m.rows_failed, ",outcome=\"answered\"");
  w.value("rows_finished_total", m.rows_failed, ",outcome=\"error\"");
  w.begin("request_success_total", "counter", "Answered rows, by what ended them.");
  w.value("request_success_total", m.stats.rows_stopped, ",finished_reason=\"stop\"");
  w.value("request_success_total", m.stats.rows_at_length, ",finished_reason=\"length\"");
  w.value("request_success_total", m.stats.rows_repetitive, ",finished_reason=\"repetition\"");
  w.counter("corrupted_requests_total", "Rows whose logits held NaN or infinity.", m.stats.rows_broken);
  w.gauge("job_seconds", "Time since the first row could be computed.", m.elapsed_s);
}

void add_distributions(Writer& w, const Distributions& d, int64_t max_model_len) {
  const std::vector<double> tokens = token_buckets(max_model_len);
  w.histogram("iteration_tokens_total", "Tokens per step.", kStepTokenBuckets, d.step_tokens);
  w.histogram("time_to_first_token_seconds", "From pulling a row to its first token.", kFirstTokenBuckets, d.ttft_s);
  w.histogram("inter_token_latency_seconds", "Between emissions of a row.", kTokenBuckets, d.itl_s);
  w.histogram("request_time_per_output_token_seconds", "Time per token of a row after its first.", kTokenBuckets,
              d.tpot_s);
  w.histogram("e2e_request_latency_seconds", "From pulling a row to its answer.", kRequestBuckets, d.e2e_s);
  w.histogram("request_queue_time_seconds", "From pulling a row to its first step.", kRequestBuckets, d.queue_s);
  w.histogram("request_inference_time_seconds", "From a row's first step to its last token.", kRequestBuckets,
              d.inference_s);
  w.histogram("request_prefill_time_seconds", "From a row's first step to its first token.", kRequestBuckets,
              d.prefill_s);
  w.histogram("request_decode_time_seconds", "From a row's first token to its last.", kRequestBuckets, d.decode_s);
  w.histogram("request_prompt_tokens", "Prompt tokens of a row.", tokens, d.prompt_tokens);
  w.histogram("request_generation_tokens", "Generated tokens of a row.", tokens, d.generation_tokens);
}

}  // namespace

std::string prometheus_text(const jobs::JobMetrics& metrics, const std::string& model_name, int64_t max_model_len) {
  Writer writer(model_name);
  add_engine(writer, metrics);
  add_rows(writer, metrics);
  add_distributions(writer, metrics.distributions, max_model_len);
  return writer.take();
}

}  // namespace tokenmill::app
