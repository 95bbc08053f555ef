#include "engine/text/regex.h"

#include <doctest/doctest.h>

#include <vector>

#include "kernels/core/error.h"

using namespace tokenmill;
using namespace tokenmill::text;

namespace {

std::vector<std::string> matches(const std::string& pattern, const std::string& text) {
  std::vector<std::string> out;
  Regex(pattern, "test").for_each_match(text, [&](Span m) { out.push_back(text.substr(m.begin, m.end - m.begin)); });
  return out;
}

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("white space is Unicode's White_Space, inside and outside of a class") {
  CHECK(matches(R"(\s)", "a\u180E\u200B\u0085\u3000\x0B") == Strings{"\u0085", "\u3000", "\x0B"});
  CHECK(matches(R"([^\S\n]+)", " \n\t\u00A0x\u180E") == Strings{" ", "\t\u00A0"});
  CHECK(matches(R"([\s-]+)", "a- -b") == Strings{"- -"});
}

TEST_CASE("scripts are scripts, not script extensions") {
  CHECK(matches(R"(\p{Han}+)", "\u4F60\u3001\u597D") == Strings{"\u4F60", "\u597D"});
  CHECK(matches(R"(\p{^Han}+)", "\u4F60\u3001\u597D") == Strings{"\u3001"});
}

TEST_CASE("a look-ahead sees the end of the piece, and lines end at every newline") {
  CHECK(matches(R"(\s+(?!\S)|\s+)", "a   b  ") == Strings{"  ", " ", "  "});
  CHECK(matches("^.|.$", "ab\ncd") == Strings{"a", "b", "c", "d"});
}

TEST_CASE("empty matches move on by whole characters") {
  CHECK(matches("x*", "\u00E9xx\u4F60") == Strings{"", "xx", ""});
}

TEST_CASE("quantifiers mean what they mean in Ruby") {
  CHECK(matches("a{,2}b", "aaab") == Strings{"aab"});
  CHECK(matches("a{x", "a{x") == Strings{"a{x"});
  CHECK(matches("a{1,2}?", "aa") == Strings{"a", "a"});
  CHECK(matches(R"(\u0041\x42\x{43}\h)", "ABCd") == Strings{"ABCd"});
}

TEST_CASE("a construct that PCRE2 would read otherwise is refused by name") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[a&&b]", "an intersection &&"},
      {"[a[bc]]", "a class inside a class"},
      {"[[:alpha:]]", "a POSIX class"},
      {"a{2}+", "quantifier followed by +"},
      {"a{2}?", "quantifier followed by ?"},
      {R"(\R)", R"(the escape \R)"},
      {R"(\Kx)", R"(the escape \K)"},
      {R"([\W])", R"(the escape \W inside a class)"},
      {R"(\pL)", "without braces"},
      {R"(\p{L)", "without its closing brace"},
      {"(?m:.)", "an unusual group (?m:"},
      {"(?<name>x)", "an unusual group (?<n"},
      {"(*UTF)x", "a group that begins with *"},
      {R"([a-\s])", "a range that ends in a set"},
      {R"(\xE9)", "a raw byte"},
      {"(?i:stra\u00DFe)", "\"st\", which is also a single letter"},
      {"(?i:\u00DF)", "a letter beyond ASCII under (?i)"},
      {R"((?i:[\p{Lu}]))", "a property in a class under (?i)"},
      {"[a", "a [ without its ]"},
      {"[]", "an empty [] class"},
      {"x\\", "a backslash at the end"},
      {"(x", "PCRE2 cannot compile"},
      {R"(\p{Nonsense})", "PCRE2 cannot compile"},
  };
  for (const auto& [pattern, what] : cases) {
    CAPTURE(pattern);
    CHECK_THROWS_WITH_AS(Regex(pattern, "tokenizer.json: pre_tokenizer"), doctest::Contains(what.c_str()), Error);
    CHECK_THROWS_WITH_AS(Regex(pattern, "tokenizer.json: pre_tokenizer"),
                         doctest::Contains("tokenizer.json: pre_tokenizer: "), Error);
  }
  // Outside of the (?i) group the same is fine.
  CHECK(matches("(?i:'s)|st\u00DF", "'S st\u00DF") == Strings{"'S", "st\u00DF"});
}

TEST_CASE("a pattern that runs away is an error, not another result") {
  const Regex runaway("(?:a|aa|aaa)+(?:b|c)", "test");
  CHECK_THROWS_WITH_AS(runaway.find(std::string(4000, 'a'), 0), doctest::Contains("fails on a text of 4000 bytes"),
                       Error);
}

TEST_CASE("long runs stay linear") {
  const Regex split(R"(\s*[\r\n]+|\s+(?!\S)|\s+|[^\s]+)", "test");
  const std::string spaces(4 << 20, ' ');
  size_t count = 0;
  split.for_each_match(spaces + "x", [&](Span) { ++count; });
  CHECK(count == 3);  // all but one, the last, x
}
