#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <thread>

#include "app/bench/figures.h"
#include "app/bench/json_output.h"
#include "app/bench/load.h"
#include "app/flags.h"
#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using namespace tokenmill::app;
using Ids = std::vector<int32_t>;

namespace {

Ids ids_of(int64_t number, const RunOptions& options, int64_t repetition = 0) {
  return bench_request(number, options, 1000, repetition).prompt_token_ids;
}

Ids front(const Ids& ids, std::ptrdiff_t count) { return {ids.begin(), ids.begin() + count}; }

double number(const std::vector<io::JsonValue::Member>& members, std::string_view name) {
  for (const auto& [key, value] : members)
    if (key == name) return value.as_double();
  FAIL("no figure ", name);
  return 0;
}

}  // namespace

TEST_CASE("random requests repeat, differ from each other, and share what --prefix-len says") {
  RunOptions options;
  options.bench.input_len = 20;
  options.bench.prefix_len = 30;
  CHECK(prompt_tokens_of(options.bench) == 50);
  const Ids first = ids_of(1, options), second = ids_of(2, options), warm_up = ids_of(1, options, kWarmUp),
            again = ids_of(1, options, 1);
  CHECK(first.size() == 50);
  CHECK(first == ids_of(1, options));
  CHECK(front(first, 30) == front(second, 30));
  CHECK(first != second);
  CHECK(front(first, 16) != front(warm_up, 16));  // no block of the warm-up or another repetition can be found again
  CHECK(front(first, 16) != front(again, 16));
  CHECK(front(warm_up, 16) != front(again, 16));
  CHECK(*std::max_element(first.begin(), first.end()) < 1000);
  options.seed = 7;
  CHECK(ids_of(1, options) != first);
  const Request request = bench_request(1, options, 1000, 0);
  CHECK(request.sampling.temperature == 0);
  CHECK(request.sampling.ignore_eos);
  CHECK(request.sampling.max_tokens == options.bench.output_len);
}

TEST_CASE("prefix_repetition has as many prefixes as asked for, in turn") {
  const RunOptions options = parse_options(parse_command_line(
      {"bench", "throughput", "--dataset-name", "prefix_repetition", "--prefix-repetition-prefix-len", "8",
       "--prefix-repetition-suffix-len", "4", "--prefix-repetition-num-prefixes", "3"}));
  std::set<Ids> prefixes, prompts;
  for (int64_t i = 0; i < 30; ++i) {
    const Ids ids = ids_of(i, options);
    CHECK(ids.size() == 12);
    prompts.insert(ids);
    prefixes.insert(front(ids, 8));
    CHECK(front(ids, 8) == front(ids_of(i + 3, options), 8));
  }
  CHECK(prefixes.size() == 3);
  CHECK(prompts.size() == 30);
}

TEST_CASE("figures add replicas up and keep both sets of names") {
  const std::vector<Measured> all = {{.seconds = 4,
                                      .tail_s = 1,
                                      .input_tokens = 30,
                                      .output_tokens = 10,
                                      .steps = 5,
                                      .sum_running = 10,
                                      .prefix_queries = 30,
                                      .prefix_hits = 15,
                                      .kv_peak = 0.5,
                                      .kv_waste = 1},
                                     {.seconds = 2,
                                      .tail_s = 0.5,
                                      .input_tokens = 10,
                                      .output_tokens = 10,
                                      .steps = 5,
                                      .sum_running = 20,
                                      .prefix_queries = 10,
                                      .prefix_hits = 5,
                                      .kv_peak = 0.25,
                                      .kv_waste = 1}};
  Distributions distributions;
  for (const double value : {0.1, 0.2, 0.3}) distributions.tpot_s.add(value);
  const auto figures = bench_figures(8, 4, all, distributions);
  CHECK(number(figures, "elapsed_time") == 4);
  CHECK(number(figures, "request_throughput") == 2);
  CHECK(number(figures, "requests_per_second") == 2);
  CHECK(number(figures, "output_throughput") == 5);
  CHECK(number(figures, "total_token_throughput") == 15);
  CHECK(number(figures, "output_tokens_per_second_per_rank") == 1.25);
  CHECK(number(figures, "prefix_cache_hit_rate") == 0.5);
  CHECK(number(figures, "cached_input_tokens") == 20);
  CHECK(number(figures, "kv_cache_usage_peak") == 0.5);
  CHECK(number(figures, "kv_waste") == 0.2);
  CHECK(number(figures, "mean_running") == 3);
  CHECK(number(figures, "tail_seconds") == 2.5);  // replica 1 had nothing left to take after 1.5 s
  CHECK(number(figures, "dp_imbalance") == doctest::Approx(4.0 / 3));
  CHECK(number(figures, "mean_tpot_ms") == doctest::Approx(200));
  CHECK(number(figures, "std_tpot_ms") == doctest::Approx(81.65).epsilon(0.001));
  CHECK(number(figures, "median_tpot_ms") == doctest::Approx(200).epsilon(0.016));
  CHECK(number(figures, "p99_itl_ms") == 0);
}

TEST_CASE("of several repetitions the one of median length is told, each one's rates, and how far they are apart") {
  std::vector<std::vector<io::JsonValue::Member>> repetitions;
  for (const double seconds : {4.0, 1.0, 2.0, 8.0})
    repetitions.push_back(bench_figures(
        8, 1, {{.seconds = seconds, .input_tokens = 24, .output_tokens = 16, .preemptions = std::lround(seconds)}},
        {}));
  const io::JsonValue all = io::JsonValue::object(repetition_figures(repetitions));
  CHECK(all.at("elapsed_time").as_double() == 2);
  CHECK(all.at("num_preemptions").as_int64() == 2);
  CHECK(all.at("output_tokens_per_second").as_double() == 8);
  std::vector<double> elapsed, rates;
  for (const io::JsonValue& sample : all.at("samples").items()) {
    elapsed.push_back(sample.at("elapsed_time").as_double());
    rates.push_back(sample.at("tokens_per_second").as_double());
  }
  CHECK(elapsed == std::vector<double>{4, 1, 2, 8});
  CHECK(rates == std::vector<double>{10, 40, 20, 5});
  const io::JsonValue& spread = all.at("spread").at("elapsed_time");
  CHECK(spread.at("min").as_double() == 1);
  CHECK(spread.at("median").as_double() == 3);
  CHECK(spread.at("max").as_double() == 8);
  CHECK(spread.at("stddev").as_double() == doctest::Approx(3.09570).epsilon(1e-5));
  const io::JsonValue one = io::JsonValue::object(repetition_figures({repetitions[0]}));
  CHECK(one.at("samples").items().size() == 1);
  CHECK(one.at("spread").at("requests_per_second").at("stddev").as_double() == 0);
  CHECK(one.at("spread").at("requests_per_second").at("median").as_double() == 2);
}

TEST_CASE("figures go to a file, replaced at the end, or into what is no file") {
  const test::TempDir dir;
  const std::string path = dir.write("f.json", "old");
  {
    JsonOutput output(path);
    CHECK(io::read_file(path, 100) == "old");
    output.write(io::JsonValue::number(int64_t{1}));
  }
  CHECK(io::read_file(path, 100) == "1\n");
  { JsonOutput unused(path); }
  CHECK(io::read_file(path, 100) == "1\n");
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);

  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  std::string read;
  std::thread reader([&] {
    io::File pipe = io::File::open_read(dir / "pipe");
    std::string buffer(100, '\0');
    while (const int64_t bytes = pipe.read_some(std::as_writable_bytes(std::span(buffer))))
      read.append(buffer, 0, static_cast<size_t>(bytes));
  });
  JsonOutput(dir / "pipe").write(io::JsonValue::number(int64_t{2}));
  reader.join();
  CHECK(read == "2\n");
  JsonOutput("/dev/null").write(io::JsonValue());
  JsonOutput("").write(io::JsonValue());
  CHECK_THROWS_WITH_AS(JsonOutput(dir / "none/f.json"), doctest::Contains("f.json cannot be written: "), Error);
  CHECK_THROWS_WITH_AS(JsonOutput(dir.path()), doctest::Contains("Is a directory"), Error);
}

TEST_CASE("bench --help lists the benchmarks") {
  const std::string text = parse_command_line({"bench", "--help"}).text;
  CHECK(text.find("throughput") != std::string::npos);
  CHECK(text.find("kernels") != std::string::npos);
}
