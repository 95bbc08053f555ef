#include "jobs/report.h"

#include <doctest/doctest.h>
#include <yaml-cpp/yaml.h>

#include <limits>

#include "io/file.h"
#include "support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

JobOutcome outcome() {
  JobOutcome o{.rows = 10, .failed = 2, .done = 10, .index_s = 0.5, .run_s = 4, .merge_s = 0.25, .elapsed_s = 5};
  for (int rank = 0; rank < 2; ++rank) {
    ReplicaReport replica{.rank = rank, .host = "node1", .run_s = rank == 0 ? 4.0 : 3.0};
    replica.status = {
        .rows_finished = 5, .rows_failed = rank * 2, .busy_s = rank == 0 ? 3.0 : 1.0, .tail_s = rank == 0 ? 0.5 : 1.0};
    Distributions distributions;
    for (int i = 1; i <= 10; ++i) distributions.ttft_s.add(rank + i);
    distributions.prompt_tokens.add(17.2);
    replica.distributions = distributions.serialize();
    replica.status.stats.host_stall_s = 0.25;
    replica.journal = {.rows = 5, .bytes = 1000, .commits = 2, .cpu_s = 0.02, .commit_s = 0.5, .blocked_s = 0.01};
    replica.status.stats.prefix_cache_queries = 100;
    replica.status.stats.prefix_cache_hits = rank * 50;
    replica.status.stats.sum_kv_waste = 0.4;
    replica.status.stats.generation_tokens = 50;
    replica.status.stats.steps = 4;
    replica.status.stats.sum_running = 10;
    replica.status.stats.kv_usage_peak = 0.5 + rank * 0.1;
    o.replicas.push_back(replica);
  }
  return o;
}

TEST_CASE("totals, imbalance and tail are computed over the replicas") {
  const JobOutcome o = outcome();
  CHECK(o.totals().generation_tokens == 100);
  CHECK(o.totals().kv_usage_peak == doctest::Approx(0.6));
  CHECK(o.dp_imbalance() == doctest::Approx(1.5));
  CHECK(o.tail_s() == doctest::Approx(2));  // from 2 s, when rank 1 had nothing left to pull, to 4 s
  CHECK(o.metrics().stats.generation_tokens == 100);
  CHECK(o.metrics().distributions.ttft_s.count() == 20);
  CHECK(o.metrics().distributions.ttft_s.max() == 11);
  CHECK(JobOutcome{}.dp_imbalance() == 0);
  CHECK(JobOutcome{}.tail_s() == 0);
}

TEST_CASE("run.yaml keeps the order and the types of what it is given") {
  const test::TempDir dir;
  write_run_report(dir / "run.yaml",
                   {{"versions", {{"tokenmill", std::string("1.10")}, {"mpi", std::string("Open MPI \"v4\"\n")}}},
                    {"configuration",
                     {{"id", std::string("0123")},
                      {"flag", std::string("true")},
                      {"really", true},
                      {"seed", std::numeric_limits<int64_t>::max()},
                      {"temperature", 0.7},
                      {"stop", std::vector<std::string>{"a: b", "no", ""}},
                      {"nested", ReportSection{{"calls", int64_t{3}}, {"bytes", ReportSection{{"sent", int64_t{4}}}}}},
                      {"ranks", std::vector<ReportSection>{{{"rank", int64_t{0}}, {"host", std::string("a")}},
                                                           {{"rank", int64_t{1}}, {"host", std::string("b")}}}}}}},
                   {"in: put.jsonl"}, outcome());
  const std::string text = io::read_file(dir / "run.yaml", 1 << 20);
  CHECK(text.find("tokenmill: \"1.10\"") != std::string::npos);
  CHECK(text.find("flag: \"true\"") != std::string::npos);
  CHECK(text.find("versions:") < text.find("configuration:"));
  CHECK(text.find("configuration:") < text.find("throughput:"));
  const YAML::Node root = YAML::Load(text);
  CHECK(root["versions"]["mpi"].as<std::string>() == "Open MPI \"v4\"\n");
  CHECK(root["configuration"]["id"].as<std::string>() == "0123");
  CHECK(root["configuration"]["really"].as<bool>());
  CHECK(root["configuration"]["seed"].as<int64_t>() == std::numeric_limits<int64_t>::max());
  CHECK(root["configuration"]["temperature"].as<double>() == 0.7);
  CHECK(root["configuration"]["stop"].as<std::vector<std::string>>() == std::vector<std::string>{"a: b", "no", ""});
  CHECK(root["configuration"]["nested"]["bytes"]["sent"].as<int>() == 4);
  CHECK(root["configuration"]["ranks"].size() == 2);
  CHECK(text.find("- {rank: 1, host: \"b\"}") != std::string::npos);
  CHECK(root["inputs"][0].as<std::string>() == "in: put.jsonl");
  CHECK(root["rows"]["succeeded"].as<int>() == 8);
  CHECK(root["throughput"]["generation_tokens_per_second"].as<double>() == doctest::Approx(25));
  CHECK(root["seconds"]["tail"].as<double>() == doctest::Approx(2));
  CHECK(root["replica_seconds"]["host_stall_s"].as<double>() == doctest::Approx(0.5));
  CHECK(root["journal"]["bytes"].as<int>() == 2000);
  CHECK(root["journal"]["commit_s"].as<double>() == doctest::Approx(1));
  CHECK(root["journal"]["share"].as<double>() == doctest::Approx(0.06 / 7));
  CHECK(root["replicas"][0]["journal"]["share"].as<double>() == doctest::Approx(0.03 / 4));
  CHECK(root["kv_cache"]["kv_usage_peak"].as<double>() == doctest::Approx(0.6));
  CHECK(root["kv_cache"]["prefix_cache_hit_rate"].as<double>() == doctest::Approx(0.25));
  CHECK(root["kv_cache"]["kv_waste"].as<double>() == doctest::Approx(0.1));
  CHECK(root["distributions"]["ttft_s"]["count"].as<int>() == 20);
  CHECK(root["distributions"]["ttft_s"]["mean"].as<double>() == doctest::Approx(6));
  CHECK(root["distributions"]["ttft_s"]["p50"].as<double>() == doctest::Approx(6).epsilon(0.02));
  CHECK(root["distributions"]["ttft_s"]["max"].as<double>() == 11);
  CHECK(root["distributions"]["prompt_tokens"]["p99"].as<double>() == 17);
  CHECK(root["replicas"][1]["distributions"]["ttft_s"]["mean"].as<double>() == doctest::Approx(6.5));
  CHECK(root["replicas"][1]["tail_s"].as<double>() == 1);
  CHECK(root["replicas"][1]["prefix_cache_hits"].as<int>() == 50);
  REQUIRE(root["replicas"].size() == 2);
  CHECK(root["replicas"][0]["mean_running"].as<double>() == doctest::Approx(2.5));
  CHECK(root["replicas"][1]["rank"].as<int>() == 1);
  CHECK(root["replicas"][1]["host"].as<std::string>() == "node1");
}

TEST_CASE("a job that took no time has no infinite rates") {
  const test::TempDir dir;
  write_run_report(dir / "run.yaml", {}, {}, JobOutcome{.rows = 0, .replicas = {ReplicaReport{}}});
  const std::string text = io::read_file(dir / "run.yaml", 1 << 20);
  CHECK(text.find(": .nan") == std::string::npos);
  CHECK(text.find(": .inf") == std::string::npos);
  CHECK(text.find(": inf") == std::string::npos);
  CHECK_NOTHROW(YAML::Load(text));
}

}  // namespace
}  // namespace tokenmill::jobs
