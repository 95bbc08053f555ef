// Small templates against what jinja2 made of them (scripts/fixtures/jinja_snippets.py).
#include <doctest/doctest.h>

#include <string>

#include "engine/text/jinja.h"
#include "io/json.h"
#include "kernels/core/error.h"

namespace tokenmill::jinja {
namespace {

// The text, or "error: ..." of parsing or rendering.
std::string outcome(const std::string& source, const Variables& variables, const CivilTime& now) {
  try {
    const RenderResult result = Template::parse(source, "snippet").render(variables, now);
    return result.error.empty() ? result.text : "error: " + result.error;
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kConfig);
    return std::string("error: ") + error.what();
  }
}

TEST_CASE("templates render as jinja2 renders them") {
  const io::JsonValue file = io::parse_json_file(TM_TEST_DATA "/chat_templates/snippets.json");
  const CivilTime now = parse_civil_time(file.at("now").as_string());
  const Variables variables = file.at("variables").members();
  const auto& snippets = file.at("snippets").items();
  REQUIRE(snippets.size() > 1000);
  for (const io::JsonValue& snippet : snippets) {
    const std::string& source = snippet.at("template").as_string();
    CAPTURE(source);
    const std::string found = outcome(source, variables, now);
    if (const io::JsonValue* text = snippet.find("text")) {
      CHECK(found == text->as_string());
    } else {
      CAPTURE(snippet.at("error").as_string());
      CHECK(found.starts_with("error: "));
    }
  }
}

}  // namespace
}  // namespace tokenmill::jinja
