#include "app/rows/values.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/app/rows/rows_fixture.h"

using namespace tokenmill::rows;
using namespace tokenmill::test;

TEST_CASE("null is not given, and a long value is cut at a character for messages") {
  const auto object = tokenmill::io::parse_json(R"({"a":null,"b":0})", "v");
  CHECK(given(object, "a") == nullptr);
  CHECK(given(object, "c") == nullptr);
  REQUIRE(given(object, "b") != nullptr);
  std::string text = "x";
  for (int i = 0; i < 40; ++i) text += "\xc3\xa4";
  const std::string cut = shown(tokenmill::io::JsonValue::string(text));
  CHECK(cut.size() <= 60);
  CHECK(cut.ends_with("\xc3\xa4..."));
}

TEST_CASE("a number out of range becomes the largest bias, not an error") {
  const auto biases = read_logit_bias(tokenmill::io::parse_json(R"({"5":1e999,"2":-3})", "v"), "logit_bias");
  CHECK(biases == std::vector<std::pair<int32_t, float>>{{2, -3.0f}, {5, 100.0f}});
}

TEST_CASE("a number that has no int64 or double is judged by its field's bounds and shown as it is written") {
  const std::string at = ": in.jsonl:1: ";
  CHECK(error_of(R"({"prompt":"x","n":99999999999999999999})") ==
        "n" + at + "n is 99999999999999999999; it must be between 1 and 16384");
  CHECK(error_of(R"({"prompt":"x","sampling":{"max_tokens":-99999999999999999999}})") ==
        "max_tokens" + at + "max_tokens is -99999999999999999999; it must be at least 1");
  CHECK(error_of(R"({"prompt":"x","logprobs":99999999999999999999})") ==
        "logprobs" + at + "logprobs is 99999999999999999999; at most 20 are allowed: raise --max-logprobs (-1: no limit)");
  CHECK(error_of(R"({"prompt":"x","truncate_prompt_tokens":99999999999999999999})") ==
        "truncate_prompt_tokens" + at + "truncate_prompt_tokens is 99999999999999999999; it must be at most 256, the "
        "model's length");
  CHECK(error_of(R"({"prompt":"x","min_tokens":99999999999999999999})")
            .ends_with("min_tokens is 99999999999999999999; it must be at most max_tokens, which is 16"));
  CHECK(error_of(R"({"prompt":"x","top_k":-99999999999999999999})")
            .ends_with("top_k is -99999999999999999999; it must be at least 1, or 0 or -1 for no limit"));
  CHECK(error_of(R"({"prompt":"x","temperature":1e309})") ==
        "temperature" + at + "temperature is 1e309; it must be between 0 and 2");
  CHECK(error_of(R"({"prompt":"x","top_p":1e-400})").ends_with("top_p is 1e-400; it must be above 0 and at most 1"));
  CHECK(error_of(R"({"prompt":"x","repetition_detection":{"max_pattern_size":2,"min_count":-99999999999999999999}})")
            .ends_with("repetition_detection.min_count is -99999999999999999999; it must be at least 2"));
  CHECK(error_of(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x","n":1e2}})")
            .find("n is 1e2; it must be a whole number") != std::string::npos);
  CHECK(error_of(R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x","n":99999999999999999999}})")
            .find("n is 99999999999999999999; it must be between 1 and 16384") != std::string::npos);
  CHECK(error_of(R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"messages":[],"logprobs":true,)"
                 R"("top_logprobs":99999999999999999999}})")
            .find("top_logprobs is 99999999999999999999; it must be between 0 and what --max-logprobs allows") !=
        std::string::npos);
  for (const char* field : {"top_k", "max_tokens", "thinking_token_budget"}) {  // without an upper bound of its own
    CodecOptions with = options();
    with.thinking = {{270}, {271}};
    CHECK_MESSAGE(error_of(fmt::format(R"({{"prompt":"x","{}":99999999999999999999}})", field), with)
                      .ends_with(" is 99999999999999999999; it must be below 9223372036854775807"),
                  field);
  }
  CodecOptions with = options();
  with.defaults.sampling.n = 20000;  // the job's, not the row's
  CHECK(error_of(R"({"prompt":"x"})", with).ends_with("n is 20000; it must be between 1 and 16384"));
}
