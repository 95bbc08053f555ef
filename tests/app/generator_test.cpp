#include "app/generator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/text/tokenizer_loader.h"
#include "io/json.h"
#include "kernels/core/error.h"
#include "tests/support/fake_runner.h"

namespace tokenmill::app {
namespace {

const text::Tokenizer& tiny_tokenizer() {
  static const text::Tokenizer tokenizer = text::load_tokenizer_json(
      io::parse_json_file(std::string(TM_TEST_DATA) + "/cases/tiny_bpe.json"), {}, "tiny_bpe.json");
  return tokenizer;
}

RunnerLimits limits() {
  RunnerLimits limits;
  limits.kv_groups = {{.block_size = 16}};
  limits.num_blocks = {64};
  limits.max_num_seqs = 4;
  limits.max_num_batched_tokens = 64;
  limits.max_logits_rows = 4;
  limits.max_scored_rows = 64;
  limits.max_logprobs = 4;
  limits.max_model_len = 128;
  limits.vocab_size = 272;
  return limits;
}

struct Fixture {
  explicit Fixture(EngineGeneratorOptions options)
      : runner(test::FakeModel{.kv_groups = limits().kv_groups, .vocab_size = 272, .seed = 3}, limits()),
        codec(tiny_tokenizer(), {},
              {.vocab_size = 272, .max_model_len = 1000, .max_record_bytes = 1 << 20, .openai = {"tiny", 0}}),
        engine(runner, &tiny_tokenizer(),
               {.scheduler = {.waiting_order = WaitingOrder::kPrefix}, .eos_token_ids = {269}}),
        generator(engine, codec, options) {}

  void submit(const std::string& record) {
    generator.submit(codec.encode({.row = num_rows, .file = "in.jsonl", .line = num_rows + 1}, record));
    ++num_rows;
  }
  /// Result lines by row.
  std::map<int64_t, std::string> run() {
    std::map<int64_t, std::string> lines;
    do {
      generator.step();
      for (jobs::FinishedRow& row : generator.take_finished())
        CHECK(lines.emplace(row.row, std::move(row.record)).second);
    } while (!generator.idle());
    CHECK(static_cast<int64_t>(lines.size()) == num_rows);
    return lines;
  }

  test::FakeRunner runner;
  rows::Codec codec;
  Engine engine;
  EngineGenerator generator;
  int64_t num_rows = 0;
};

/// The tokens and text of a result line.
std::string answer_of(const std::string& line) {
  const size_t begin = line.find("\"text\":");
  return line.substr(begin, line.find('}', begin) - begin);
}

TEST_CASE("rows with equal prompts, sampling and seeds are computed once with dedup, and nothing of it shows") {
  const std::string records[] = {
      R"({"id":"a","prompt":"same","max_tokens":9,"seed":5})",
      R"({"id":"b","prompt":"same","max_tokens":9,"seed":5,"return_token_ids":true})",  // row 0's
      R"({"id":"c","prompt":"same","max_tokens":8,"seed":5})",
      R"({"id":"d","prompt":"same","max_tokens":9})",
      R"({"id":"e","prompt":"same","max_tokens":9})",  // another stream
      R"({"id":"d","prompt":"same","max_tokens":9})",  // the same: row 3's
      R"({"id":"f","prompt":"same","max_tokens":9,"seed":6})",
      R"({"id":"g","prompt":"sama","max_tokens":9,"seed":5})",
      R"({"id":"h","prompt":"same","max_tokens":9,"seed":5})",  // row 0's
      R"({"id":"i"})"};
  std::map<int64_t, std::string> lines[2];
  for (const bool dedup : {false, true}) {
    Fixture f({.max_num_seqs = 4, .dedup = dedup});
    for (const std::string& record : records) f.submit(record);
    lines[dedup] = f.run();
    const jobs::GeneratorStats stats = f.generator.stats();
    CHECK(stats.rows_deduplicated == (dedup ? 3 : 0));
    CHECK(f.engine.stats().num_finished == (dedup ? 6 : 9));
    CHECK(stats.plan_seconds > 0);
  }
  CHECK(lines[0] == lines[1]);
  CHECK(lines[1].at(1).find("\"b\"") != std::string::npos);
  CHECK(lines[1].at(1).find("\"token_ids\"") != std::string::npos);
}

TEST_CASE("greedy rows are equal whatever their seeds and names") {
  Fixture f({.max_num_seqs = 4, .dedup = true});
  f.submit(R"({"id":"a","prompt":"same","temperature":0,"max_tokens":9})");
  f.submit(R"({"id":"b","prompt":"same","temperature":0,"max_tokens":9,"seed":5})");
  f.submit(R"({"id":"c","prompt":"same","temperature":0,"max_tokens":9,"top_p":0.5})");
  f.submit(R"({"id":"d","prompt":"same","temperature":0.5,"max_tokens":9})");
  const auto lines = f.run();
  CHECK(f.generator.stats().rows_deduplicated == 2);
  CHECK(answer_of(lines.at(1)) == answer_of(lines.at(0)));
  CHECK(answer_of(lines.at(2)) == answer_of(lines.at(0)));
}

TEST_CASE("a row that waited for an equal one's answer has its own clock and no times of computing") {
  Fixture f({.max_num_seqs = 4, .dedup = true});
  std::map<int64_t, RequestTiming> timings;
  f.generator.on_finished([&](const rows::RowItem& item, const RequestOutput& output) {
    CHECK(output.num_completion_tokens == 9);
    timings[item.row()] = output.timing;
  });
  for (const double pulled_s : {100.0, 200.0}) {
    auto item = f.codec.encode({.row = f.num_rows, .file = "in.jsonl", .line = f.num_rows + 1},
                               R"({"prompt":"same","temperature":0,"max_tokens":9,"ignore_eos":true})");
    item->pulled_s = pulled_s;
    f.generator.submit(std::move(item));
    ++f.num_rows;
  }
  f.run();
  CHECK(timings.at(0).pulled_s == 100);
  CHECK(timings.at(0).first_token_s.has_value());
  CHECK(timings.at(1).pulled_s == 200);
  CHECK(timings.at(1).finished_s == timings.at(0).finished_s);
  CHECK_FALSE(timings.at(1).first_scheduled_s.has_value());
  CHECK_FALSE(timings.at(1).first_token_s.has_value());
}

TEST_CASE("rows that are given up go on in another generator with the same results, logprobs and equal rows included") {
  const std::string records[] = {
      R"({"prompt":"one","max_tokens":40,"ignore_eos":true,"n":3,"seed":1})",
      R"({"prompt":"two","max_tokens":30,"ignore_eos":true,"logprobs":2,"prompt_logprobs":1})",
      R"({"prompt":"two","max_tokens":30,"ignore_eos":true,"seed":4})",
      R"({"prompt":"two","max_tokens":30,"ignore_eos":true,"seed":4})", R"({"prompt":"five","max_tokens":2})"};
  const EngineGeneratorOptions options{.max_num_seqs = 4, .dedup = true};
  Fixture whole(options);
  for (const std::string& record : records) whole.submit(record);
  const auto expected = whole.run();
  int64_t num_saved = 0;
  for (int num_steps = 0; num_steps < 60; num_steps += 3) {
    CAPTURE(num_steps);
    std::map<int64_t, std::string> lines, saved;
    const auto keep = [&](EngineGenerator& generator) {
      for (jobs::FinishedRow& row : generator.take_finished())
        CHECK(lines.emplace(row.row, std::move(row.record)).second);
    };
    Fixture first(options);
    for (const std::string& record : records) first.submit(record);
    for (int i = 0; i < num_steps; ++i) {
      first.generator.step();
      keep(first.generator);
    }
    for (jobs::PartialRow& row : first.generator.take_partial()) saved[row.row] = std::move(row.record);
    keep(first.generator);
    CHECK(first.generator.idle());
    Fixture second(options);
    for (const std::string& record : records) {
      const int64_t row = second.num_rows++;
      if (lines.contains(row)) continue;
      auto item = second.codec.encode({.row = row, .file = "in.jsonl", .line = row + 1}, record);
      if (saved.contains(row)) second.codec.resume(*item, saved[row]);
      second.generator.submit(std::move(item));
    }
    while (!second.generator.idle()) {
      second.generator.step();
      keep(second.generator);
    }
    CHECK(lines == expected);
    CHECK(first.engine.stats().num_generation_tokens + second.engine.stats().num_generation_tokens ==
          whole.engine.stats().num_generation_tokens);
    num_saved += static_cast<int64_t>(saved.size());
  }
  CHECK(num_saved > 20);
}

TEST_CASE("what was saved of a row that has become another one is left alone") {
  Fixture f({.max_num_seqs = 4});
  auto item =
      f.codec.encode({.row = 0, .file = "in.jsonl", .line = 1}, R"({"prompt_token_ids":[1,2,3],"max_tokens":4})");
  for (const char* other : {R"({"row":0,"prompt_tokens":4,"samples":[{"ids":[5],"sum":0}]})",
                            R"({"row":0,"prompt_tokens":3,"samples":[{"ids":[5],"sum":0},{"ids":[],"sum":0}]})",
                            R"({"row":0,"prompt_tokens":3,"samples":[{"ids":[272],"sum":0}]})"}) {
    f.codec.resume(*item, other);
    CHECK(dynamic_cast<rows::RowItem&>(*item).request.progress.empty());
  }
  f.codec.resume(*item, R"({"row":0,"prompt_tokens":3,"samples":[{"ids":[5],"sum":0}]})");
  CHECK(dynamic_cast<rows::RowItem&>(*item).request.progress.samples.size() == 1);
}

TEST_CASE("a row says once that it begins, before its first step; refused ones do not begin") {
  Fixture f({.max_num_seqs = 4});
  std::vector<int64_t> begun;
  f.generator.on_begin([&](int64_t row) { begun.push_back(row); });
  for (int i = 0; i < 5; ++i) f.submit(R"({"prompt":"row","max_tokens":5,"ignore_eos":true})");
  f.submit(R"({"prompt":"row","max_tokens":5,"ignore_eos":true,"n":2})");
  CHECK(begun.empty());
  f.generator.submit(f.codec.refuse({.row = f.num_rows, .file = "in.jsonl", .line = ++f.num_rows}, "{}", "why"));
  f.generator.step();
  CHECK(begun == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(f.run().at(6).find("why") != std::string::npos);
  CHECK(begun == std::vector<int64_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("an error of the engine is each equal row's own") {
  Fixture f({.max_num_seqs = 4, .dedup = true});
  const std::string long_prompt(300, 'q');
  f.submit(R"({"prompt":")" + long_prompt + R"(","temperature":0})");
  f.submit(R"({"prompt":")" + long_prompt + R"(","temperature":0})");
  const auto lines = f.run();
  CHECK(lines.at(0).find("in.jsonl:1: ") != std::string::npos);
  CHECK(lines.at(1).find("in.jsonl:2: ") != std::string::npos);
  CHECK(f.generator.stats().rows_deduplicated == 1);
}

TEST_CASE("a row equal to one that has its answer is computed again: answers are not kept") {
  Fixture f({.max_num_seqs = 4, .dedup = true});
  f.submit(R"({"prompt":"same","temperature":0,"max_tokens":9})");
  while (f.generator.take_finished().empty()) f.generator.step();
  f.submit(R"({"prompt":"same","temperature":0,"max_tokens":9})");
  while (f.generator.take_finished().empty()) f.generator.step();
  CHECK(f.generator.stats().rows_deduplicated == 0);
  CHECK(f.generator.idle());
}

TEST_CASE("the window is bounded by rows and by what their samples keep, but holds two batches") {
  Fixture rows({.max_num_seqs = 4, .window_rows = 20, .dedup = true});
  CHECK(rows.generator.wants() == 20);
  for (int i = 0; i < 12; ++i) rows.submit(R"({"prompt":"same","temperature":0})");
  CHECK(rows.generator.wants() == 8);  // those that wait for an equal one count
  rows.run();
  CHECK(rows.generator.wants() == 20);

  // 2048 bytes a sample, and what a row keeps besides.
  Fixture bytes({.max_num_seqs = 4, .window_rows = 100, .window_bytes = 2 * 2048 + 4 * 40});
  bytes.submit(R"({"prompt":"0123456789012345678901234567890123456789","temperature":0})");
  CHECK(bytes.generator.wants() == 99);
  bytes.submit(R"({"prompt":"abcdefghijabcdefghijabcdefghijabcdefghij","temperature":0})");
  CHECK(bytes.generator.wants() == 6);
  bytes.run();
  CHECK(bytes.generator.wants() == 100);

  Fixture samples({.max_num_seqs = 4, .window_rows = 100, .window_bytes = 2 * 2048 + 4 * 5});
  samples.submit(R"({"prompt_token_ids":[1,2,3,4,5],"n":2,"max_tokens":4})");
  CHECK(samples.generator.wants() == 7);  // which share the prompt
  samples.run();

  Fixture biases({.max_num_seqs = 4, .window_rows = 100, .window_bytes = 2048 + 4 * 11});
  biases.submit(R"({"prompt":"a","allowed_token_ids":[1,2,3,4,5,6,7,8,9,10],"max_tokens":4})");
  CHECK(biases.generator.wants() == 7);
  biases.run();

  Fixture few({.max_num_seqs = 4, .window_rows = 1});
  CHECK(few.generator.wants() == 8);
}

}  // namespace
}  // namespace tokenmill::app
