#include "io/json.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "io/utf8.h"
#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using io::JsonValue;
using io::parse_json;
using io::to_json;

namespace {
std::string round_trip(const std::string& text) { return to_json(parse_json(text, "test")); }
std::string error_of(const std::string& text, const io::JsonLimits& limits = {}) {
  try {
    parse_json(text, "file.jsonl:12", limits);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}
std::string literal(std::string_view text) {
  std::string out;
  io::append_json_string(out, text);
  return out;
}
}  // namespace

TEST_CASE("numbers come back digit for digit") {
  for (const char* text :
       {"0", "-0", "9007199254740993", "18446744073709551615", "18446744073709551616", "18446744073709551617",
        "-9223372036854775808", "-9223372036854775809", "1.10", "-0.0", "1e5", "1E+05", "1e-400", "1e999", "-1e999",
        "0.1e0", "123456789012345678901234567890123456789012345678901234567890", "2.50000000000000000000000001"}) {
    CAPTURE(text);
    CHECK(round_trip(text) == text);
    CHECK(round_trip("[" + std::string(text) + "]") == "[" + std::string(text) + "]");
    CHECK(round_trip("{\"id\":" + std::string(text) + " }") == "{\"id\":" + std::string(text) + "}");
    CHECK(parse_json(text, "test").number_text() == text);
  }
}

TEST_CASE("integers are exact or refused, never wrapped or rounded") {
  const auto value = [](const char* text) { return parse_json(text, "test"); };
  CHECK(value("18446744073709551615").as_uint64() == std::numeric_limits<uint64_t>::max());
  CHECK(value("-9223372036854775808").as_int64() == std::numeric_limits<int64_t>::min());
  CHECK(value("-0").as_int64() == 0);
  CHECK(value("-0").as_uint64() == 0);
  for (const char* text : {"18446744073709551616", "-1", "3.5", "1e3", "1.0", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK_FALSE(value(text).fits_uint64());
    CHECK_THROWS_WITH_AS(value(text).as_uint64(), doctest::Contains(text), Error);
  }
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "3.5", "1e3"}) {
    CAPTURE(text);
    CHECK_FALSE(value(text).fits_int64());
    CHECK_THROWS_WITH_AS(value(text).as_int64(), doctest::Contains(text), Error);
  }
  CHECK_FALSE(value("\"1\"").fits_int64());
}

TEST_CASE("as_double gives the nearest double, infinity beyond the range") {
  const auto value = [](const char* text) { return parse_json(text, "test").as_double(); };
  CHECK(value("0.1") == 0.1);
  CHECK(value("-1.5e-7") == -1.5e-7);
  CHECK(value("1e999") == std::numeric_limits<double>::infinity());
  CHECK(value("-1e999") == -std::numeric_limits<double>::infinity());
  CHECK(value("1e-400") == 0.0);
  CHECK(value("5e-324") == std::numeric_limits<double>::denorm_min());
  CHECK(std::signbit(value("-0")));
}

TEST_CASE("the last value of a repeated key wins at every depth, in the place of the first") {
  CHECK(round_trip(R"({"a":1,"b":2,"a":3})") == R"({"a":3,"b":2})");
  CHECK(round_trip(R"({"x":{"t":0,"t":1.5},"y":[{"k":1,"k":{"k":1,"k":2}}]})") ==
        R"({"x":{"t":1.5},"y":[{"k":{"k":2}}]})");
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"k" + std::to_string(i % 40) + "\":" + std::to_string(i) + ",";
  many.back() = '}';
  const JsonValue value = parse_json(many, "test");
  CHECK(value.members().size() == 40);
  for (int i = 0; i < 40; ++i) {
    CAPTURE(i);
    CHECK(value.members()[static_cast<size_t>(i)].first == "k" + std::to_string(i));
    CHECK(value.at("k" + std::to_string(i)).as_int64() == (i < 20 ? i + 80 : i + 40));
  }
  CHECK(value.find("k40") == nullptr);
  CHECK(value.find("") == nullptr);
}

TEST_CASE("find works on copies, on moved values and after a change") {
  std::string text = "{";
  for (int i = 0; i < 30; ++i) text += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
  text.back() = '}';
  JsonValue original = parse_json(text, "test");
  JsonValue copy = original;
  original.members()[3].first = "renamed";
  CHECK(original.find("k3") == nullptr);
  CHECK(original.at("renamed").as_int64() == 3);
  CHECK(copy.at("k3").as_int64() == 3);
  const JsonValue moved = std::move(copy);
  CHECK(moved.at("k29").as_int64() == 29);
  CHECK_THROWS_WITH_AS(moved.at("absent"), "field \"absent\" is missing", Error);
}

TEST_CASE("U+0000 stays in strings and names") {
  const JsonValue value = parse_json(R"({"n\u00004":"left\u0000right"})", "test");
  CHECK(value.members()[0].first == std::string("n\0"
                                                "4",
                                                3));
  CHECK(value.members()[0].second.as_string() == std::string("left\0right", 10));
  CHECK(to_json(value) == R"({"n\u00004":"left\u0000right"})");
}

TEST_CASE("unpaired surrogates are errors, pairs are characters") {
  CHECK(parse_json(R"("x\ud83d\ude42y")", "test").as_string() == "x\xF0\x9F\x99\x82y");
  for (const char* text : {R"("x\ud800y")", R"("x\udc00y")", R"("x\ude42\ud83dy")", R"("xy\ud83d")",
                           R"("\ud83d\ud83d\ude42")", R"({"\ud800":1})"}) {
    CAPTURE(text);
    CHECK(error_of(text).find("surrogate") != std::string::npos);
  }
}

TEST_CASE("damaged text is an error that names the place and the byte") {
  CHECK(error_of("{\"a\":1") ==
        "file.jsonl:12: invalid JSON at byte 7: while parsing object - unexpected end of input; expected '}'");
  CHECK(error_of("[1,2,]").starts_with("file.jsonl:12: invalid JSON at byte 6: "));
  CHECK(error_of("\"\xFF\"").find("ill-formed UTF-8") != std::string::npos);
  CHECK(error_of("\"\xED\xA0\x80\"").find("ill-formed UTF-8") != std::string::npos);
  CHECK(error_of("\"\xC0\x80\"").find("ill-formed UTF-8") != std::string::npos);
  CHECK(error_of(std::string("{}\0{}", 5)).find("at byte 3: a NUL byte") != std::string::npos);
  CHECK(error_of(std::string("\"a\0b\"", 5)).find("at byte 3: a NUL byte") != std::string::npos);
  for (const char* text : {"",          " ",     "{} {}",     "1 2",   "{}x",     "nul",     "NaN",      "Infinity",
                           "-Infinity", "+1",    "01",        "1.",    ".5",      "1e",      "-",        "'a'",
                           "\"a\nb\"",  "[1 2]", "{\"a\" 1}", "{1:2}", "// x\n1", "\"\\x\"", "\"\\u12\""}) {
    CAPTURE(text);
    CHECK(error_of(text).starts_with("file.jsonl:12: invalid JSON at byte "));
  }
}

TEST_CASE("an error text stays short and valid UTF-8 however long or damaged the token is") {
  const std::string text = error_of("\"" + std::string(100000, 'x') + "\xFF");
  CHECK(text.size() < 300);
  CHECK(io::find_invalid_utf8(text) == std::string::npos);
  // A token that looks like the parser's own message.
  const std::string posing = error_of("{\"a\":\"x'; expected y\xE1.\"}");
  CHECK(posing == "file.jsonl:12: invalid JSON at byte 22: while parsing value - invalid string: ill-formed UTF-8 byte");
}

TEST_CASE("nesting is capped, and the deepest allowed value parses") {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']');
  };
  CHECK(round_trip(nested(256)) == nested(256));
  CHECK(error_of(nested(257)) == "file.jsonl:12: JSON is nested deeper than 256 levels");
  CHECK(error_of(std::string(10000000, '[')) == "file.jsonl:12: JSON is nested deeper than 256 levels");
  CHECK(error_of("[[1]]", {.max_depth = 1}) == "file.jsonl:12: JSON is nested deeper than 1 levels");
}

TEST_CASE("the number of values is capped, so that a text cannot take many times its size") {
  CHECK(error_of("[[],{},1]", {.max_values = 3}) == "file.jsonl:12: JSON holds more than 3 values");
  CHECK(error_of("[[],{},1]", {.max_values = 4}) == "no error");
}

TEST_CASE("a wrong kind is named") {
  const JsonValue number = parse_json("3", "test");
  CHECK_THROWS_WITH_AS(number.as_string(), "expected a string, found number", Error);
  CHECK_THROWS_WITH_AS(number.items(), "expected an array, found number", Error);
  CHECK_THROWS_WITH_AS(number.members(), "expected an object, found number", Error);
  CHECK_THROWS_WITH_AS(JsonValue().as_bool(), "expected a boolean, found null", Error);
  CHECK_THROWS_WITH_AS(number.find("x"), "expected an object, found number", Error);
}

TEST_CASE("values compare by content, objects in any order, numbers by text") {
  const auto value = [](const char* text) { return parse_json(text, "test"); };
  CHECK(value(R"({"a":[1,null],"b":true})") == value(R"({"b":true,"a":[1,null]})"));
  CHECK_FALSE(value("1.0") == value("1"));
  CHECK_FALSE(value(R"({"a":1})") == value(R"({"a":1,"b":1})"));
  CHECK_FALSE(value("\"1\"") == value("1"));
  CHECK_FALSE(value("[1,2]") == value("[2,1]"));
}

TEST_CASE("values built by hand write the same text as parsed ones") {
  const JsonValue value = JsonValue::object({{"id", JsonValue::number(int64_t{-7})},
                                             {"x", JsonValue::number(0.1)},
                                             {"big", JsonValue::number_text("18446744073709551617")},
                                             {"ok", JsonValue::boolean(true)},
                                             {"none", JsonValue()},
                                             {"s", JsonValue::array({JsonValue::string("a"), JsonValue::array()})},
                                             {"o", JsonValue::object()}});
  const std::string text = R"({"id":-7,"x":0.1,"big":18446744073709551617,"ok":true,"none":null,"s":["a",[]],"o":{}})";
  CHECK(to_json(value) == text);
  CHECK(round_trip(text) == text);
  CHECK(parse_json(text, "test") == value);
  CHECK_THROWS_AS(JsonValue::number_text("01"), Error);
  CHECK_THROWS_AS(JsonValue::number(std::nan("")), Error);
}

TEST_CASE("string literals escape what JSON asks for and repair invalid UTF-8") {
  CHECK(literal("plain text, longer than eight bytes") == "\"plain text, longer than eight bytes\"");
  CHECK(literal("") == "\"\"");
  CHECK(literal(std::string("a\0b\x1f\x7f", 5)) == "\"a\\u0000b\\u001f\x7f\"");
  CHECK(literal("\"\\\b\f\n\r\t/") == "\"\\\"\\\\\\b\\f\\n\\r\\t/\"");
  CHECK(literal("gr\xC3\xBC\xC3\x9F \xF0\x9F\x99\x82") == "\"gr\xC3\xBC\xC3\x9F \xF0\x9F\x99\x82\"");
  CHECK(literal("\xED\xA0\x80") == "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
  CHECK(literal("\xF0\x9F\x41") ==
        "\"\xEF\xBF\xBD"
        "A\"");
  CHECK(literal("\xC0\x80") == "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
  CHECK(literal("\xF0\x9F\x99") == "\"\xEF\xBF\xBD\"");
  for (int c = 0; c < 128; ++c) {  // each byte at each place of a word
    for (size_t place = 0; place < 9; ++place) {
      std::string text(9, 'a');
      text[place] = static_cast<char>(c);
      const std::string out = literal(text);
      CHECK(out.find_first_of(std::string("\x01\x1f\n", 3)) == std::string::npos);
      CHECK(parse_json(out, "test").as_string() == text);
    }
  }
}

TEST_CASE("doubles are written with the shortest text that reads back the same") {
  const auto text_of = [](double value) {
    std::string out;
    io::append_json_number(out, value);
    return out;
  };
  CHECK(text_of(0.1) == "0.1");
  CHECK(text_of(-3.2) == "-3.2");
  CHECK(text_of(1e22) == "1e+22");
  CHECK(text_of(5e-324) == "5e-324");
  for (double value : {1.0 / 3, 1e308, -0.0, 123456789.123, 6.02214076e23})
    CHECK(parse_json(text_of(value), "t").as_double() == value);
  CHECK_THROWS_AS(text_of(std::numeric_limits<double>::infinity()), Error);
}

TEST_CASE("a byte-order mark may stand at the front of a file only") {
  const test::TempDir dir;
  dir.write("bom.json", "\xEF\xBB\xBF{\"a\":1}");
  CHECK(io::parse_json_file(dir / "bom.json").at("a").as_int64() == 1);
  CHECK_THROWS_WITH_AS(io::parse_json("\xEF\xBB\xBF{}", "x:7"),
                       "x:7: invalid JSON at byte 1: a byte-order mark, which may stand at the front of a file only", Error);
  dir.write("twice.json", "\xEF\xBB\xBF\xEF\xBB\xBF{}");
  CHECK_THROWS_WITH_AS(io::parse_json_file(dir / "twice.json"), doctest::Contains("a byte-order mark"), Error);
}
