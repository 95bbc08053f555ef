#include "app/rows/values.h"

#include <doctest/doctest.h>

using namespace tokenmill::rows;

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
