#include <doctest/doctest.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "app/iteration_log.h"
#include "app/metrics_file.h"
#include "app/prometheus.h"
#include "io/file.h"
#include "io/json.h"
#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using namespace tokenmill::app;

namespace {

jobs::JobMetrics some_metrics() {
  jobs::JobMetrics m{.num_replicas = 2, .rows_total = 100, .rows_done = 40, .rows_failed = 3, .elapsed_s = 12.5};
  m.stats.running_now = 8;
  m.stats.kv_usage_now = 1.5;
  m.stats.prompt_tokens = 1234;
  m.stats.steps = 10;
  m.stats.sum_kv_waste = 0.5;
  m.stats.prefix_cache_queries = 1000;
  m.stats.prefix_cache_hits = 250;
  m.stats.rows_stopped = 30;
  m.stats.rows_at_length = 7;
  for (const double value : {0.003, 0.03, 0.3, 3.0, 3000.0}) m.distributions.ttft_s.add(value);
  m.distributions.step_tokens.add(16, 4);
  return m;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("counters have vLLM's names under our prefix") {
  const std::string text = prometheus_text(some_metrics(), "tiny \"x\"", 100);
  const std::string labels = "{model_name=\"tiny \\\"x\\\"\"";
  CHECK(has_line(text, "tokenmill:num_requests_running" + labels + "} 8"));
  CHECK(has_line(text, "tokenmill:kv_cache_usage_perc" + labels + "} 0.75"));
  CHECK(has_line(text, "tokenmill:prompt_tokens_total" + labels + "} 1234"));
  CHECK(has_line(text, "tokenmill:prefix_cache_hits_total" + labels + "} 250"));
  CHECK(has_line(text, "tokenmill:kv_waste_perc" + labels + "} 0.05"));
  CHECK(has_line(text, "tokenmill:request_success_total" + labels + ",finished_reason=\"length\"} 7"));
  CHECK(has_line(text, "tokenmill:rows_finished_total" + labels + ",outcome=\"answered\"} 37"));
  CHECK(has_line(text, "# TYPE tokenmill:num_preemptions_total counter"));
}

TEST_CASE("histograms are cumulative and end in everything") {
  const std::string text = prometheus_text(some_metrics(), "m", 100);
  const std::string name = "tokenmill:time_to_first_token_seconds", labels = "{model_name=\"m\"";
  CHECK(has_line(text, "# TYPE " + name + " histogram"));
  CHECK(has_line(text, name + "_bucket" + labels + ",le=\"0.001\"} 0"));
  CHECK(has_line(text, name + "_bucket" + labels + ",le=\"0.005\"} 1"));
  CHECK(has_line(text, name + "_bucket" + labels + ",le=\"0.5\"} 3"));
  CHECK(has_line(text, name + "_bucket" + labels + ",le=\"2560\"} 4"));
  CHECK(has_line(text, name + "_bucket" + labels + ",le=\"+Inf\"} 5"));
  CHECK(has_line(text, name + "_count" + labels + "} 5"));
  CHECK(text.find(name + "_sum" + labels + "} 3003.33") != std::string::npos);
  CHECK(has_line(text, "tokenmill:iteration_tokens_total_bucket" + labels + ",le=\"8\"} 0"));
  CHECK(has_line(text, "tokenmill:iteration_tokens_total_bucket" + labels + ",le=\"32\"} 4"));
  CHECK(text.find("request_prompt_tokens_bucket" + labels + ",le=\"100\"}") != std::string::npos);
  CHECK(text.find("request_prompt_tokens_bucket" + labels + ",le=\"200\"}") == std::string::npos);
}

TEST_CASE("every line is a comment or a sample, and every metric says what it is first") {
  const std::regex sample(R"(tokenmill:([a-z0-9_]+)\{[^{}]*\} [-+.0-9e]+)"), help(R"(# (HELP|TYPE) tokenmill:\S+ .+)");
  std::istringstream lines(prometheus_text(some_metrics(), "m", 1000));
  std::string line, declared;
  int samples = 0;
  while (std::getline(lines, line)) {
    std::smatch match;
    if (std::regex_match(line, help)) {
      if (line.starts_with("# TYPE ")) declared = line.substr(17, line.rfind(' ') - 17);
      continue;
    }
    REQUIRE_MESSAGE(std::regex_match(line, match, sample), line);
    CHECK_MESSAGE(match[1].str().starts_with(declared), line);
    ++samples;
  }
  CHECK(samples > 150);
}

TEST_CASE("the metrics file is replaced as a whole, and the last contents stay") {
  const test::TempDir dir;
  {
    MetricsFile file(dir / "m.prom", "first\n");
    CHECK(io::read_file(dir / "m.prom", 100) == "first\n");
    for (int i = 0; i < 100; ++i) file.replace("number " + std::to_string(i) + "\n");
  }
  CHECK(io::read_file(dir / "m.prom", 100) == "number 99\n");
  CHECK_THROWS_WITH_AS(MetricsFile(dir / "none/m.prom", ""), doctest::Contains("m.prom cannot be written: "), Error);
}

TEST_CASE("a step's line splits its time") {
  const StepRecord step{.step_id = 7,
                        .launched_s = 12.5,
                        .device_s = 0.5,
                        .host_wait_s = 0.125,
                        .num_tokens = 20,
                        .num_prompt_tokens = 16,
                        .num_sequences = 5,
                        .num_logits_rows = 4,
                        .num_used_blocks = 9,
                        .num_running = 6,
                        .num_waiting = 11,
                        .op_times = {.gemm_s = 0.25, .attention_s = 0.125, .other_s = 0.03125, .host_s = 0.0625}};
  const io::JsonValue line = io::parse_json(iteration_line(step, 10), "line");
  CHECK(line.at("step").as_int64() == 7);
  CHECK(line.at("time_s").as_double() == 2.5);
  CHECK(line.at("step_s").as_double() == 0.5);
  CHECK(line.at("tokens").as_int64() == 20);
  CHECK(line.at("prompt_tokens").as_int64() == 16);
  CHECK(line.at("sequences").as_int64() == 5);
  CHECK(line.at("logits_rows").as_int64() == 4);
  CHECK(line.at("running").as_int64() == 6);
  CHECK(line.at("waiting").as_int64() == 11);
  CHECK(line.at("kv_blocks").as_int64() == 9);
  CHECK(line.at("host_wait_s").as_double() == 0.125);
  CHECK(line.at("gemm_s").as_double() == 0.25);
  CHECK(line.at("attention_s").as_double() == 0.125);
  CHECK(line.at("other_s").as_double() == 0.0625);  // what is left of the step
  CHECK(line.at("communication_s").as_double() == 0.0625);
}

TEST_CASE("several ranks write an iteration log each") {
  const test::TempDir dir;
  for (int rank = 0; rank < 2; ++rank) {
    IterationLog log(dir / "steps.jsonl", rank, 2);
    log.add({.step_id = 1});
    log.close();
  }
  CHECK(io::read_file(dir / "steps.jsonl.1", 1000).starts_with("{\"step\":1,"));
  IterationLog alone(dir / "one.jsonl", 0, 1);
  alone.close();
  CHECK(io::read_file(dir / "one.jsonl", 1000).empty());
  CHECK_THROWS_WITH_AS(IterationLog(dir / "none/steps", 0, 1), doctest::Contains("steps cannot be written: "), Error);
}
