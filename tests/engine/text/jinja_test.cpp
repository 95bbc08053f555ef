#include "engine/text/jinja.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "io/json.h"
#include "kernels/core/error.h"

namespace tokenmill::jinja {
namespace {

constexpr CivilTime kNow = {2026, 7, 30, 0, 0, 0};

RenderResult render(std::string_view source, const std::string& variables = "{}", const RenderLimits& limits = {}) {
  return Template::parse(source, "t.jinja").render(io::parse_json(variables, "test").members(), kNow, limits);
}

std::string parse_error(std::string_view source) {
  try {
    Template::parse(source, "t.jinja");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST_CASE("what is not understood is refused when the template is parsed, with construct, name and line") {
  CHECK(parse_error("a\n{% include 'x' %}") == "t.jinja:2: tag 'include' is not supported in chat templates");
  CHECK(parse_error("\n\n{{ x|nope }}") == "t.jinja:3: filter 'nope' is not supported");
  CHECK(parse_error("{{ x is nope }}") == "t.jinja:1: test 'nope' is not supported");
  CHECK(parse_error("{% frob %}") == "t.jinja:1: unknown tag 'frob'");
  CHECK(parse_error("{{ x.encode('utf8') }}") == "t.jinja:1: method 'encode' of strings is not supported");
  CHECK(parse_error("{% if x %}\n{% for y in z %}\n{% endif %}") ==
        "t.jinja:3: 'endif' does not close or continue the innermost open tag");
  CHECK(parse_error("{% if x %}\n\n") == "t.jinja:2: 'if' of line 1 has no 'endif'");
  CHECK(parse_error("{% break %}") == "t.jinja:1: 'break' stands outside of a for loop");
  CHECK(parse_error("{{ 99999999999999999999 }}") ==
        "t.jinja:1: integer 99999999999999999999 does not fit into 64 bits");
  CHECK(parse_error("{{ '\\N{BULLET}' }}").starts_with("t.jinja:1: \\N{...} escapes"));
  CHECK(parse_error("{{ '\\ud83d\\ude00' }}").starts_with("t.jinja:1: a \\u escape"));
  CHECK(parse_error("a\xff") == "t.jinja: the template is not valid UTF-8 at byte 1");
}

TEST_CASE("an error while rendering names the template, the line and the variable") {
  CHECK(render("a\n{{ x.y }}").error == "t.jinja:2: 'x' is undefined");
  CHECK(render("{{ m.y.z }}", R"({"m": {}})").error == "t.jinja:1: 'dict object' has no attribute 'y'");
  CHECK(render("a\n\n{{ raise_exception('no ' ~ role) }}", R"({"role": "wizard"})").error == "t.jinja:3: no wizard");
  CHECK(render("{{ 'a' + 1 }}").error == "t.jinja:1: can only concatenate str (not \"int\") to str");
  CHECK(render("{{ x.append(1) }}", R"({"x": []})").error ==
        "t.jinja:1: access to attribute 'append' of 'list' object is unsafe.");
  CHECK(render("text {{ x.y }}").text.empty());
}

TEST_CASE("integers have 64 bits: more is an error, never a wrong number") {
  CHECK(has(render("{{ 9223372036854775807 + 1 }}").error, "integer overflow"));
  CHECK(has(render("{{ 2 ** 64 }}").error, "integer overflow"));
  CHECK(has(render("{{ -9223372036854775807 - 2 }}").error, "integer overflow"));
  CHECK(has(render("{{ 3037000500 * 3037000500 }}").error, "integer overflow"));
  CHECK(has(render("{{ '9223372036854775808' | int }}").error, "integer overflow"));
  CHECK(has(render("{{ big + 1 }}", R"({"big": 18446744073709551617})").error, "integer overflow"));
}

TEST_CASE("numbers of the input print as they came when they are beyond 64 bits") {
  const std::string variables = R"({"id": 123456789012345678901234567890, "f": 1e-5, "z": -0, "t": 1.50})";
  CHECK(render("{{ id }} {{ f }} {{ z }} {{ t }} {{ [id] | tojson }}", variables).text ==
        "123456789012345678901234567890 1e-05 0 1.5 [123456789012345678901234567890]");
}

// Enough for every honest template of these tests; the default only takes longer to use up.
constexpr RenderLimits kSmall = {.max_work = 1'000'000, .max_output_bytes = 1 << 20};

RenderResult render_small(std::string_view source) { return render(source, "{}", kSmall); }

TEST_CASE("a template without an end stops with an error") {
  CHECK(has(render_small("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").error, "nested more than"));
  CHECK(has(render_small("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}").error,
            "too much work"));
  CHECK(has(render_small("{{ 'x' * 100000000000 }}").error, "too much work"));
  CHECK(has(render_small("{{ [1] * 100000000000 }}").error, "too much work"));
  CHECK(has(
      render_small("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}")
          .error,
      "too much work"));
  CHECK(has(render_small("{{ 'x'.rjust(100000000000) }}").error, "too much work"));
  CHECK(has(render_small("{{ '{:99999999999}'.format(1) }}").error, "larger than 100000"));
  CHECK(has(render_small("{{ '%99999999999d' % 1 }}").error, "larger than 100000"));
  CHECK(has(render_small("{{ '%.9999f' % 1 }}").error, "larger than 1000"));
  CHECK(
      has(render_small("{% for a in range(1000) %}{{ 'x' * 100000 }}{% endfor %}").error, "longer than 1048576 bytes"));
  RenderLimits small;
  small.max_output_bytes = 10;
  CHECK(render("0123456789", "{}", small).text == "0123456789");
  CHECK(has(render("0123456789a", "{}", small).error, "longer than 10 bytes"));
}

TEST_CASE("values that hold each other or nest without an end are refused or freed") {
  const std::string deep =
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}";
  CHECK(has(render_small(deep).error, "nested more than 400 levels"));
  const std::string wide =
      "{% set ns = namespace(x=[1]) %}{% for i in range(300) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
  CHECK(render_small(wide + "ok").text == "ok");
  CHECK(has(render_small(wide + "{{ ns.x }}").error, "too much work"));
  CHECK(has(render_small(wide + "{{ ns.x | tojson }}").error, "too much work"));
  const std::string twins =
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(300) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}";
  CHECK(has(render_small(twins + "{{ ns.x == ns.y }}").error, "too much work"));
  CHECK(has(render_small(twins + "{{ ns.x < ns.y }}").error, "too much work"));
  CHECK(has(render_small("{% set a = namespace() %}{% set a.a = a %}{{ a }}").error, "too deeply"));
  CHECK(render_small("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}ok").text == "ok");
  const std::string lazy =
      "{% set ns = namespace(g=[1]) %}{% for i in range(99999) %}{% set ns.g = ns.g | map('string') "
      "%}{% endfor %}{{ ns.g | list }}";
  CHECK(has(render_small(lazy).error, "nested more than"));
  CHECK(render_small("{% for x in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}").text == "TrueFalse");
}

TEST_CASE("nesting in the source is bounded, long chains included") {
  for (const auto& [open, close] :
       {std::pair{"(", ")"}, std::pair{"[", "]"}, std::pair{"{1: ", "}"}, std::pair{"not ", ""}, std::pair{"-", ""},
        std::pair{"x[", "]"}, std::pair{"f(", ")"}}) {
    CAPTURE(open);
    CHECK(has(parse_error("{{ " + repeated(open, 100000) + "1" + repeated(close, 100000) + " }}"), "too deeply"));
  }
  CHECK(has(parse_error(repeated("{% if x %}", 100000)), "too deeply"));
  CHECK(has(parse_error("{% for " + repeated("(", 100000) + "a" + repeated(")", 100000) + " in x %}"), "too deeply"));
  CHECK(has(parse_error("{{ " + repeated("1 if x else ", 100000) + "1 }}"), "too deeply"));
  for (const std::string_view link : {" + 1", ".a", "[0]", "|abs", " is odd", "()", " and 1", " if 1"}) {
    CAPTURE(link);
    const std::string error = parse_error("{{ 1" + repeated(link, 100000) + " }}");
    CHECK((has(error, "levels") || has(error, "chained")));
  }
  CHECK(has(parse_error("{{ f(" + repeated("1,", 256) + ") }}"), "more than 255 arguments"));
  CHECK(render("{{ 1" + repeated(" + 1", 400) + " }}").text == "401");
  CHECK(render("{{ " + repeated("(", 190) + "1" + repeated(")", 190) + " }}").text == "1");
  CHECK(render("{{ 1" + repeated(" ~ 1", 2000) + " }}").text.size() == 2001);
}

TEST_CASE("one template renders the same from several variables and does not keep state") {
  const Template parsed = Template::parse("{% set ns = namespace(n=n) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}", "t");
  for (int64_t n : {1, 5, 1}) {
    const RenderResult result = parsed.render({{"n", io::JsonValue::number(n)}}, kNow);
    CHECK(result.text == std::to_string(n + 1));
  }
}

TEST_CASE("the date comes from the caller") {
  CHECK(render("{{ strftime_now('%Y-%m-%d %A') }}").text == "2026-07-30 Thursday");
  CHECK(has(render("{{ strftime_now('%s') }}").error, "not supported"));
  CHECK(parse_civil_time("2024-02-29T23:59:59").second == 59);
  for (const std::string_view bad : {"", "2024", "2023-02-29", "2024-13-01", "2024-1-01", "2024-01-01T25:00:00",
                                     "2024-01-01T", "-024-01-01", "2024-01-01T00:00:0x", "0000-01-01"})
    CHECK_THROWS_AS(parse_civil_time(bad), Error);
}

}  // namespace
}  // namespace tokenmill::jinja
