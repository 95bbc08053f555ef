#include <doctest/doctest.h>
#include <fmt/format.h>

#include <sstream>
#include <tuple>

#include "app/commands/commands.h"
#include "app/diff/compare.h"
#include "app/diff/pairing.h"
#include "app/exit_codes.h"
#include "app/flags.h"
#include "kernels/core/error.h"
#include "tests/io/packing.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using namespace tokenmill::app;

namespace {

std::string native(int64_t row, const std::string& id, const std::string& text, double logprob = -1.5) {
  return fmt::format(
      R"({{"id":"{}","row":{},"outputs":[{{"index":0,"text":"{}","token_ids":[5,6],"finish_reason":"stop","stop_reason":null,"cumulative_logprob":{}}}],"usage":{{"prompt_tokens":3,"completion_tokens":2}},"error":null}})",
      id, row, text, logprob);
}

std::string failed(const std::string& code, const std::string& field, const std::string& message) {
  return fmt::format(
      R"({{"id":"x","row":0,"outputs":[],"usage":null,"error":{{"code":"{}","field":"{}","message":"{}"}}}})", code,
      field, message);
}

std::string openai(const std::string& id, const std::string& text, const std::string& request_id = "req_1") {
  return fmt::format(
      R"({{"id":"batch_{1}","custom_id":"{0}","response":{{"status_code":200,"request_id":"{1}","body":{{"id":"chatcmpl-{1}","object":"chat.completion","created":0,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{2}","refusal":null}},"logprobs":{{"content":[{{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}}]}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}}}}},"error":null}})",
      id, request_id, text);
}

std::string lines(const std::vector<std::string>& rows) {
  std::string out;
  for (const std::string& row : rows) out += row + "\n";
  return out;
}

/// The first difference as "field: a | b"; "" when equal.
std::string difference(const std::string& a, const std::string& b, double tolerance = 0) {
  const auto result = diff::compare_rows(io::parse_json(a, "a"), io::parse_json(b, "b"), tolerance);
  return result.difference ? result.difference->field + ": " + result.difference->a + " | " + result.difference->b : "";
}

struct Outcome {
  int code = 0;
  std::string text;
};

Outcome run_diff(const std::string& a, const std::string& b, double tolerance = 0, int64_t max_differences = 20) {
  std::ostringstream out;
  RunOptions options;
  options.diff = {a, b, tolerance, max_differences};
  const int code = diff_outputs(options, out);
  return {code, out.str()};
}

Outcome run_diff_of(const std::string& a, const std::string& b, int64_t max_differences = 20) {
  const test::TempDir dir;
  return run_diff(dir.write("a.jsonl", a), dir.write("b.jsonl", b), 0, max_differences);
}

std::string error_of(const std::function<void()>& run, int code) {
  try {
    run();
  } catch (const Error& error) {
    CHECK(exit_code(error.kind()) == code);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("rows that say the same are equal, whatever the order of their members") {
  CHECK(difference(native(0, "a", "x"), native(0, "a", "x")) == "");
  CHECK(difference(R"({"id":1,"row":0,"error":null})", R"({"error":null,"row":0,"id":1})") == "");
}

TEST_CASE("the first field that differs is named, with both sides") {
  CHECK(difference(native(0, "a", "x"), native(0, "b", "x")) == R"(id: "a" | "b")");
  CHECK(difference(native(0, "a", "x"), native(0, "a", "y")) == R"(outputs[0].text: "x" | "y")");
  CHECK(difference(R"({"id":1,"outputs":[{"token_ids":[5,6]}]})", R"({"id":1,"outputs":[{"token_ids":[5,7]}]})") ==
        "outputs[0].token_ids[1]: 6 | 7");
  CHECK(difference(R"({"id":1,"outputs":[{"token_ids":[5,6]}]})", R"({"id":1,"outputs":[{"token_ids":[5]}]})") ==
        "outputs[0].token_ids[1]: 6 | absent");
  CHECK(difference(R"({"id":1,"outputs":[{"stop_reason":null}]})", R"({"id":1,"outputs":[{"stop_reason":"."}]})") ==
        R"(outputs[0].stop_reason: null | ".")");
  CHECK(difference(R"({"id":1,"usage":{"completion_tokens":1}})", R"({"id":1,"usage":{"completion_tokens":2}})") ==
        "usage.completion_tokens: 1 | 2");
  CHECK(difference(R"({"id":1,"input":{"label":"x"}})", R"({"id":1})") == R"(input: {"label":"x"} | absent)");
  CHECK(difference(R"({"id":1})", R"({"id":1,"input":{"label":"x"}})") == R"(input: absent | {"label":"x"})");
}

TEST_CASE("long texts are shown around the place where they differ") {
  const std::string head(50, 'x');
  const std::string shown = difference(native(0, "a", head + "é1" + head + head), native(0, "a", head + "é2"));
  CHECK(shown == "outputs[0].text: ...\"" + std::string(18, 'x') + "é1" + std::string(39, 'x') + "\"... | ...\"" +
                     std::string(18, 'x') + "é2\"");
  const auto result = diff::compare_rows(io::parse_json(native(0, "a", head + "é1"), "a"),
                                         io::parse_json(native(0, "a", head + "é2"), "b"), 0);
  CHECK(result.difference->note == "different from character 52 on");
  // The byte that differs lies inside a character: both are shown whole.
  CHECK(difference(native(0, "a", "aé"), native(0, "a", "aè")) == R"(outputs[0].text: "aé" | "aè")");
}

TEST_CASE("of an error code, field and message count, and not the place of the row in its input") {
  const std::string row = failed("invalid_request", "temperature", "in.jsonl:3: temperature is 9");
  CHECK(difference(row, failed("invalid_request", "temperature", "/else/where:17.jsonl:12: temperature is 9")) == "");
  CHECK(difference(row, failed("internal", "temperature", "in.jsonl:3: temperature is 9")) ==
        R"(error.code: "invalid_request" | "internal")");
  CHECK(difference(row, failed("invalid_request", "top_p", "in.jsonl:3: temperature is 9")) ==
        R"(error.field: "temperature" | "top_p")");
  CHECK(difference(row, failed("invalid_request", "temperature", "in.jsonl:3: temperature is 8")) ==
        R"(error.message: "temperature is 9" | "temperature is 8")");
  CHECK(difference(failed("a", "b", ": x"), failed("a", "b", ":1: x")) == R"(error.message: ": x" | "x")");
}

TEST_CASE("logprobs may be as far apart as the tolerance says, other numbers not at all") {
  CHECK(difference(native(0, "a", "x", -1.5), native(0, "a", "x", -1.625)) ==
        "outputs[0].cumulative_logprob: -1.5 | -1.625");
  CHECK(difference(native(0, "a", "x", -1.5), native(0, "a", "x", -1.625), 0.125) == "");
  CHECK(difference(native(0, "a", "x", -1.5), native(0, "a", "x", -1.625), 0.124) != "");
  const auto logprobs = [](const std::string& entry) { return R"({"id":1,"outputs":[{"logprobs":[)" + entry + "]}]}"; };
  const std::string entry = logprobs(R"({"17":{"logprob":-0.25,"rank":1}})");
  CHECK(difference(entry, logprobs(R"({"17":{"logprob":-0.5,"rank":1}})"), 0.25) == "");
  CHECK(difference(entry, logprobs(R"({"17":{"logprob":-0.25,"rank":2}})"), 9) ==
        "outputs[0].logprobs[0].17.rank: 1 | 2");
  CHECK(difference(entry, logprobs(R"({"18":{"logprob":-0.25,"rank":1}})"), 9) != "");
  const std::string completions = R"({"id":1,"logprobs":{"token_logprobs":[-1,null],"text_offset":[0,1]}})";
  CHECK(difference(completions, R"({"id":1,"logprobs":{"token_logprobs":[-1.5,null],"text_offset":[0,1]}})", 0.5) ==
        "");
  CHECK(difference(completions, R"({"id":1,"logprobs":{"token_logprobs":[-1,-1],"text_offset":[0,1]}})", 9) ==
        "logprobs.token_logprobs[1]: null | -1");
  CHECK(difference(completions, R"({"id":1,"logprobs":{"token_logprobs":[-1,null],"text_offset":[0,2]}})", 9) ==
        "logprobs.text_offset[1]: 1 | 2");
}

TEST_CASE("logprobs of listed ids are logprobs") {
  const auto listed = [](const char* value) {
    return fmt::format(R"({{"id":1,"prompt_token_id_logprobs":[[{}]]}})", value);
  };
  CHECK(difference(listed("-1.5"), listed("-1.25"), 0.25) == "");
  CHECK(difference(listed("-1.5"), listed("-1.25"), 0.1) == "prompt_token_id_logprobs[0][0]: -1.5 | -1.25");
  CHECK(difference(listed("null"), listed("-1.25"), 9) == "prompt_token_id_logprobs[0][0]: null | -1.25");
}

TEST_CASE("another text goes before another logprob, and its logprobs are not measured") {
  const auto compare = [](const std::string& a, const std::string& b) {
    return diff::compare_rows(io::parse_json(a, "a"), io::parse_json(b, "b"), 0);
  };
  const std::string a = R"({"id":1,"cumulative_logprob":-1,"text":"x"})";
  const auto other = compare(a, R"({"id":1,"cumulative_logprob":-3,"text":"y"})");
  CHECK(other.difference->field == "text");
  CHECK(other.num_logprobs == 0);
  const auto same = compare(a, R"({"id":1,"cumulative_logprob":-3,"text":"x"})");
  CHECK(same.difference->field == "cumulative_logprob");
  CHECK(same.max_logprob_distance == 2);
  CHECK(same.num_logprobs == 1);
}

TEST_CASE("OpenAI rows are compared without what names the request") {
  CHECK(difference(openai("a", "x"), openai("a", "x", "req_2")) == "");
  CHECK(difference(openai("a", "x"), openai("a", "y")) == R"(response.body.choices[0].message.content: "x" | "y")");
  CHECK(difference(openai("a", "x"), native(0, "a", "x")) == "format: OpenAI batch | native");
}

TEST_CASE("rows are paired by id, and the side that misses rows is found out") {
  const auto pairs = [](const std::vector<std::string>& a, const std::vector<std::string>& b) {
    const test::TempDir dir;
    diff::RowStream left(dir.write("a.jsonl", lines(a))), right(dir.write("b.jsonl", lines(b)));
    std::string out;
    diff::visit_pairs(left, right, [&](const diff::ResultLine* x, const diff::ResultLine* y) {
      out += (x ? std::to_string(x->line) : "-") + "/" + (y ? std::to_string(y->line) : "-") + " ";
    });
    return out;
  };
  const auto rows = [](const std::string& ids, const std::string& text, int64_t first_row = 0) {
    std::vector<std::string> out;
    for (const char c : ids) out.push_back(native(first_row++, std::string(1, c), text));
    return out;
  };
  CHECK(pairs(rows("abc", "x"), rows("abc", "y")) == "1/1 2/2 3/3 ");
  CHECK(pairs(rows("abcdef", "x"), rows("bdf", "y")) == "2/1 4/2 6/3 1/- 3/- 5/- ");
  CHECK(pairs(rows("bdf", "x"), rows("abcdef", "y")) == "1/2 2/4 3/6 -/1 -/3 -/5 ");
  CHECK(pairs(rows("abc", "x"), rows("azc", "y")) == "1/1 3/3 2/2 ");             // another id in the same place
  CHECK(pairs(rows("aaa", "x"), rows("aa", "y")) == "1/1 2/2 3/- ");              // ids need not be unique
  CHECK(pairs(rows("abc", "x"), rows("xyz", "y", 2)) == "1/- 2/- 3/1 -/2 -/3 ");  // no id in common: row numbers
  CHECK(pairs(rows("abc", "x"), {}) == "1/- 2/- 3/- ");
  CHECK(pairs({}, {}) == "");
  // Another order.
  CHECK(pairs(rows("abc", "x"), rows("cab", "y")) == "1/2 2/3 3/1 ");
  CHECK(pairs(rows("abcd", "x"), rows("dcba", "y")) == "4/1 3/2 2/3 1/4 ");
  CHECK(pairs(rows("abca", "x"), rows("caab", "y")) == "1/2 2/4 3/1 4/3 ");
}

TEST_CASE("outputs of inputs in another order are paired by id, and what stands elsewhere is counted") {
  const auto rows = [](const std::vector<int>& blocks, int64_t block) {
    std::string out;
    int64_t row = 0;
    for (const int b : blocks)
      for (int64_t i = 0; i < block; ++i) out += native(row++, fmt::format("{}-{}", b, i), "x") + "\n";
    return out;
  };
  // Blocks longer than the look-ahead: row numbers agree, ids do not.
  const Outcome swapped = run_diff_of(rows({1, 2}, 5000), rows({2, 1}, 5000));
  CHECK(swapped.code == kExitDone);
  CHECK(swapped.text.find("rows: 10,000 equal, 0 different, 0 only in A, 0 only in B\n") != std::string::npos);
  CHECK(swapped.text.find("10,000 of the compared rows stand in another order in B than in A\n") != std::string::npos);
  CHECK(run_diff_of(rows({1}, 10), rows({1}, 10)).text.find("another order") == std::string::npos);
}

TEST_CASE("rows that stand too far apart to be paired are counted") {
  const test::TempDir dir;
  std::vector<std::string> a, b;
  for (int64_t i = 0; i < 10000; ++i) {
    a.push_back(native(i, std::to_string(i), "x"));
    b.push_back(native(i, std::to_string((i + 5000) % 10000), "x"));
  }
  const auto run = [&](int64_t max_waiting_bytes) {
    diff::RowStream left(dir.write("a.jsonl", lines(a))), right(dir.write("b.jsonl", lines(b)));
    int64_t num_visits = 0;
    const diff::PairingNotes notes = diff::visit_pairs(
        left, right, [&](const auto*, const auto*) { ++num_visits; }, max_waiting_bytes);
    return std::tuple(num_visits, notes.num_moved, notes.num_separated);
  };
  CHECK(run(100 << 20) == std::tuple(10000, 10000, 0));
  // Half of what waits has to be given up, with what stands in its place: ids that come later find no pair any more.
  const auto [num_visits, num_moved, num_separated] = run(int64_t{5000} * static_cast<int64_t>(a[0].size()) / 2);
  CHECK(num_visits == 10000);
  CHECK(num_moved + num_separated == 10000);
  CHECK(num_separated > 4000);
}

TEST_CASE("a gap longer than the look-ahead is bridged by row numbers") {
  std::vector<std::string> all, tail;
  for (int64_t row = 0; row < 10000; ++row) {
    all.push_back(native(row, std::to_string(row), "x"));
    if (row >= 9000) tail.push_back(native(row, std::to_string(row), "x"));
  }
  const Outcome outcome = run_diff_of(lines(all), lines(tail), 1);
  CHECK(outcome.code == kExitDifferent);
  CHECK(outcome.text.find("rows: 1,000 equal, 0 different, 9,000 only in A, 0 only in B") != std::string::npos);
  CHECK(outcome.text.find("... and 8,999 more") != std::string::npos);
}

TEST_CASE("diff prints differences and a summary, and its exit code says which") {
  const std::string a = lines({native(0, "a", "x"), native(1, "b", "x", -1), native(2, "c", "x"), native(3, "d", "x")});
  const std::string b = lines({native(0, "a", "x"), native(1, "b", "x", -1.25), native(2, "d", "y")});
  const Outcome outcome = run_diff_of(a, b);
  CHECK(outcome.code == kExitDifferent);
  CHECK(outcome.text.find("row 1, id \"b\": outputs[0].cumulative_logprob is -1 in A, -1.25 in B (0.25 apart)\n"
                          "row 3, id \"d\": outputs[0].text is \"x\" in A, \"y\" in B (different from character 1 on)\n"
                          "row 2, id \"c\": only in A\n") != std::string::npos);
  CHECK(outcome.text.find("rows: 1 equal, 2 different, 1 only in A, 0 only in B\n") != std::string::npos);
  CHECK(outcome.text.find("  outputs[].text: first difference of 1 rows\n") != std::string::npos);
  CHECK(outcome.text.find("logprobs: largest distance 0.25 (row 1, id \"b\")") != std::string::npos);
  const Outcome short_one = run_diff_of(a, b, 1);
  CHECK(short_one.text.find("only in A\n") == std::string::npos);
  CHECK(short_one.text.find("... and 2 more\n") != std::string::npos);
  CHECK(run_diff_of(a, a).code == kExitDone);
  CHECK(run_diff_of("", "").code == kExitDone);
}

TEST_CASE("diff takes directories and packed files") {
  const test::TempDir dir;
  const std::string rows = lines({native(0, "a", "x"), openai("b", "y")});
  dir.write("plain/output.jsonl", rows);
  const std::string gz = dir.write("rows.gz", test::gzip(rows)), zst = dir.write("rows.zst", test::zstd(rows));
  CHECK(run_diff(dir / "plain", gz).code == kExitDone);
  CHECK(run_diff(zst, gz).code == kExitDone);
  dir.write("empty/other", "");
  const std::string message = error_of([&] { run_diff(dir / "empty", gz); }, kExitUsage);
  CHECK(message.find("is a directory without output.jsonl") != std::string::npos);
}

TEST_CASE("what cannot be compared exits with 2 and is named") {
  const test::TempDir dir;
  const std::string good = dir.write("good.jsonl", lines({native(0, "a", "x")}));
  const auto error = [&](const std::string& b) { return error_of([&] { run_diff(good, b); }, kExitUsage); };
  CHECK(error(dir / "none").find("none: no such file or directory") != std::string::npos);
  CHECK(error(dir.write("torn", native(0, "a", "x").substr(0, 80))).find("torn:1") != std::string::npos);
  CHECK(error(dir.write("text", "hello\n")).find("text:1: invalid JSON at byte 1") != std::string::npos);
  CHECK(error(dir.write("list", "[1]\n")).find("list:1: no result row: found [1], expected an object") !=
        std::string::npos);
  CHECK(error(dir.write("object", "{\"x\":1}\n")).find("object:1: no result row: it has neither id nor custom_id") !=
        std::string::npos);
  CHECK(error(dir.write("cut.gz", test::gzip(lines({native(0, "a", "y")})).substr(0, 60))).find("cut.gz") !=
        std::string::npos);
  CHECK(error(dir.write("output.h5", std::string("\x89HDF\r\n\x1a\n\0", 9))).find("is an HDF5 file; diff compares output.jsonl") !=
        std::string::npos);
  CHECK(error("").find("diff needs two outputs") != std::string::npos);
}

TEST_CASE("the command line of diff") {
  const auto options = parse_options(parse_command_line({"diff", "a", "--logprob-tolerance", "1e-3", "b"}));
  CHECK(options.diff.a == "a");
  CHECK(options.diff.b == "b");
  CHECK(options.diff.logprob_tolerance == 1e-3);
  CHECK(options.diff.max_differences == 20);
  CHECK(parse_command_line({"diff", "--help"}).text.find("--max-differences") != std::string::npos);
  CHECK_THROWS_WITH_AS(parse_command_line({"diff", "a", "b", "c"}), doctest::Contains("c is one argument too many"),
                       Error);
}
