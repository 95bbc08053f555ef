// Seeded mutations of templates through tests/engine/text/fuzz/template_fuzz.cpp. A fixed number of rounds by default;
// TOKENMILL_FUZZ_SECONDS=n runs for n seconds, TOKENMILL_FUZZ_SEED chooses other mutations.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/json.h"
#include "tests/support/mutations.h"

using namespace tokenmill;

extern "C" int fuzz_template(const uint8_t* data, size_t size);

namespace {

using test::MutationRandom;
using test::pick;

const std::vector<std::string>& pieces() {
  // clang-format off
  static const std::vector<std::string> kPieces = {
      "{{", "}}", "{%", "%}", "{#", "#}", "-", "+", "-%}", "{%-", "(", ")", "[", "]", "{", "}", "'", "\"", "\\", "\n",
      "|", "~", ".", ",", ":", "=", "==", "**", "//", "%", "*", " if ", " else ", " for x in ", " in ", " not ",
      " is ", " and ", " or ", " recursive", "loop", "loop(x)", "loop.last", "loop.length", "[::-1]", "[1:]",
      "messages", "tools", "nums", "table", "name", "namespace(a=nums)", "range(9999)", "9223372036854775807", "-1",
      "1.5", "1e308", "none", "caller()", "varargs", "|map('upper')", "|select('odd')",
      "|selectattr('role', 'eq', 'user')", "|list", "|tojson", "|tojson(indent=2)", "|join", "|sort",
      "|groupby('role')", "|batch(2)", "|items", "|first", "|indent", ".items()", ".split('')", ".format(name)",
      " % name", "{:>9.3}", "%(a)5.2f", "{% set x = x ~ x %}", "{% set ns.x = [ns.x] %}",
      "{% set ns = namespace(x=1) %}", "{% for x in messages %}", "{% endfor %}", "{% if x %}", "{% endif %}",
      "{% macro m(a, b=1) %}", "{% endmacro %}", "{{ m(1) }}", "{% call m() %}", "{% endcall %}",
      "{% filter upper %}", "{% endfilter %}", "{% break %}", "{% continue %}", "{% raw %}", "{% endraw %}",
      "{% generation %}", "{% endgeneration %}", "{% set y %}", "{% endset %}", "{% with a = 1 %}", "{% endwith %}",
      "é", "\xf0\x9f\x98\x80", "\xff", std::string(1, '\0'), "\xe2\x80\xa8", "strftime_now('%Y')", "cycler(1, 2)",
      "joiner()"};
  // clang-format on
  return kPieces;
}

/// One random change: cut, flip, insert a telling piece, delete, repeat, or go on with another template.
void mutate(std::string& text, const std::vector<std::string>& seeds, MutationRandom& random) {
  if (text.empty()) text = "{{ x }}";
  const size_t at = pick(random, text.size());
  switch (pick(random, 8)) {
    case 0:
      text.resize(at);
      break;
    case 1:
      text[at] = static_cast<char>(text[at] ^ (1 << pick(random, 8)));
      break;
    case 2:
    case 3:
      text.insert(at, pieces()[pick(random, pieces().size())]);
      break;
    case 4:
      text.erase(at, 1 + pick(random, 8));
      break;
    case 5:
      text.insert(at, text.substr(at, 1 + pick(random, 64)));
      break;
    case 6: {  // between tags, so that more of the results parse
      const size_t tag = std::min(text.find("{%", at), text.size());
      text.insert(tag, pieces()[pick(random, pieces().size())]);
      break;
    }
    default: {
      const std::string& other = seeds[pick(random, seeds.size())];
      text = text.substr(0, at) + other.substr(pick(random, other.size()));
    }
  }
  if (text.size() > (1 << 15)) text.resize(1 << 15);
}

TEST_CASE("mutated templates render, fail or are refused, and always end") {
  std::vector<std::string> seeds;
  const io::JsonValue snippets = io::parse_json_file(TM_TEST_DATA "/chat_templates/snippets.json");
  for (const io::JsonValue& snippet : snippets.at("snippets").items())
    seeds.push_back(snippet.at("template").as_string());
  for (const auto& entry : std::filesystem::directory_iterator(TM_TEST_DATA "/chat_templates"))
    if (entry.path().extension() == ".jinja") seeds.push_back(io::read_file(entry.path().string(), 1 << 20));
  std::sort(seeds.begin(), seeds.end());
  REQUIRE(seeds.size() > 1000);
  if (test::MutationRounds(0).timed())
    for (const std::string& seed : seeds) test::run_fuzz_target(fuzz_template, "template", seed);
  test::run_mutations(fuzz_template, "template", seeds, 20000,
                      [&](std::string& text, MutationRandom& random) { mutate(text, seeds, random); });
}

}  // namespace
