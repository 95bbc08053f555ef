#include "app/rows/codec.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/app/rows/rows_fixture.h"

using namespace tokenmill;
using namespace tokenmill::rows;
using namespace tokenmill::test;

TEST_CASE("an error of the engine becomes the row's error under the name of the row's own prompt field") {
  const Codec c = codec();
  const auto item = encode(c, R"({"id": 1, "messages": [{"role": "user", "content": "hi"}]})", 4);
  RequestOutput output;
  output.error = RequestError{"invalid_request", "prompt", "prompt has 9 tokens; at most 7 fit"};
  const jobs::FinishedRow row = c.format(*item, output);
  CHECK(row.failed);
  CHECK(row.record.find(R"("field":"messages","message":"in.jsonl:5: prompt has 9 tokens; at most 7 fit")") !=
        std::string::npos);
}

TEST_CASE("numbers are exact: ids keep their digits, counts that are none are refused") {
  const Codec c = codec();
  const std::vector<std::string> lines = lines_of("bigint.jsonl");
  REQUIRE(lines.size() == 8);
  const std::vector<std::string> ids = {"9007199254740993",
                                        "18446744073709551615",
                                        "18446744073709551617",
                                        "-9223372036854775808",
                                        "\"0123\"",
                                        "1",
                                        "2",
                                        "3"};
  for (size_t i = 0; i < lines.size(); ++i) CHECK(encode(c, lines[i])->id_json == ids[i]);
  CHECK(encode(c, lines[5])->request.sampling.seed == 18446744073709551615u);
  CHECK(error_of(lines[6]) == "max_tokens: in.jsonl:1: max_tokens is 3.5; it must be a whole number");
  CHECK(error_of(lines[7]) ==
        "max_tokens: in.jsonl:1: max_tokens is 99999999999999999999; it must be below 9223372036854775807");
  CHECK(error_of(R"({"prompt":"x","seed":18446744073709551616})").find("seed is 18446744073709551616") !=
        std::string::npos);
  CHECK_FALSE(request_of(R"({"prompt":"x","seed":-1})").sampling.seed);
}

TEST_CASE("of a repeated key the last value counts, at every depth") {
  const std::vector<std::string> lines = lines_of("dupkeys.jsonl");
  REQUIRE(lines.size() == 4);
  CHECK(request_of(lines[0]).prompt_token_ids == tiny_tokenizer().encode("two"));
  CHECK(encode(codec(), lines[1])->id_json == "\"d3\"");
  CHECK(request_of(lines[2]).sampling.temperature == 1.5);
  CHECK(encode(codec(), lines[3])->id_json == "\"d5\"");
}

TEST_CASE("unpaired surrogates are errors of their rows, which keep their ids") {
  const Codec c = codec();
  for (const std::string& line : lines_of("surrogate.jsonl")) {
    const auto item = encode(c, line);
    const bool good = item->id_json == "\"pair\"" || item->id_json == "\"plain\"";
    CHECK_MESSAGE(item->error.has_value() != good, line);
    CHECK(line.find("{\"id\":" + item->id_json) == 0);
  }
}

TEST_CASE("U+0000 reaches the tokenizer and comes back") {
  const std::vector<std::string> lines = lines_of("nul.jsonl");
  REQUIRE(lines.size() == 5);
  CodecOptions with = options();
  const auto ids = [&](size_t i) {
    std::string line = lines[i];
    line.insert(line.size() - 1, R"(,"add_special_tokens":false)");
    return request_of(line).prompt_token_ids;
  };
  CHECK(ids(0) == std::vector<int32_t>{108, 101, 102, 116, 0, 114, 105, 103, 104, 116});
  CHECK(ids(1) == std::vector<int32_t>{0});
  const Codec c = codec();
  const auto fourth = encode(c, lines[3]);
  CHECK(fourth->id_json.find("\\u0000") != std::string::npos);
  CHECK(c.format(*fourth, answer(std::string("a\0b", 3))).record.find("a\\u0000b") != std::string::npos);
  const auto fifth = encode(c, lines[4]);
  REQUIRE(!fifth->error);
}

TEST_CASE("bad records among good ones cost themselves only") {
  const std::vector<std::string> lines = lines_of("mixed_records.jsonl");
  REQUIRE(lines.size() == 9);
  const Codec c = codec();
  const std::map<size_t, std::string> bad = {{1, ""}, {2, "prompt"}, {5, "prompt"}, {6, ""}, {7, "temperature"}};
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto item = encode(c, lines[i], static_cast<int64_t>(i));
    CHECK(item->error.has_value() == bad.contains(i));
    if (bad.contains(i)) CHECK(item->error->field == bad.at(i));
    if (i != 6) CHECK(item->id_json == "\"r" + std::to_string(i) + "\"");  // even from the line that is cut short
    if (i == 6) CHECK(item->id_json == "6");
  }
}

TEST_CASE("the random key follows the row's seed, else the job's seed and the row's id or number") {
  const auto key = [](std::string_view record, int64_t row, uint64_t job_seed) {
    CodecOptions with = options();
    with.seed = job_seed;
    return encode(codec(with), record, row)->request.random_key;
  };
  const char* seeded = R"({"id":1,"prompt":"x","seed":3})";
  CHECK(key(seeded, 0, 1) == key(R"({"id":2,"prompt":"x","seed":3})", 5, 2));
  CHECK(key(seeded, 0, 1) != key(R"({"id":1,"prompt":"x","seed":4})", 0, 1));
  CHECK(key(R"({"id":1,"prompt":"x"})", 0, 1) == key(R"({"id":1,"prompt":"y"})", 9, 1));
  CHECK(key(R"({"id":1,"prompt":"x"})", 0, 1) != key(R"({"id":1,"prompt":"x"})", 0, 2));
  CHECK(key(R"({"id":1,"prompt":"x"})", 0, 1) != key(R"({"id":"1","prompt":"x"})", 0, 1));
  CHECK(key(R"({"prompt":"x"})", 0, 1) != key(R"({"prompt":"x"})", 1, 1));
  CHECK(key(R"({"prompt":"x"})", 3, 1) == key(R"({"prompt":"x"})", 3, 1));
}

TEST_CASE("oversized records are errors with both numbers") {
  const auto item = codec().encode({.row = 2, .file = "in.jsonl", .line = 3, .oversized_bytes = 5000}, "");
  const auto& row = dynamic_cast<const RowItem&>(*item);
  REQUIRE(row.error);
  CHECK(row.error->code == "record_too_large");
  CHECK(row.error->message == "in.jsonl:3: the record has 5000 bytes; --max-record-bytes is 1024");
  CHECK(row.id_json == "2");
}

TEST_CASE("a refused row keeps the id that its record shows, and says where it is and why") {
  const auto item = codec().refuse({.row = 2, .file = "in.jsonl", .line = 3}, R"({"id":"x","prompt":"a"})", "because");
  const auto& row = dynamic_cast<const RowItem&>(*item);
  CHECK(row.id_json == "\"x\"");
  REQUIRE(row.error);
  CHECK(row.error->code == "internal");
  CHECK(row.error->message == "in.jsonl:3: because");
  CHECK(row.error->ours);
  const auto damaged = codec().refuse({.row = 2, .file = "in.jsonl", .line = 3}, "[[[", "because");
  CHECK(dynamic_cast<const RowItem&>(*damaged).id_json == "2");
}

TEST_CASE("an oversized record keeps the id and the shape that its beginning shows") {
  const Codec c = codec();
  const auto result_of = [&](std::string_view prefix) {
    const auto item =
        c.encode({.row = 2, .file = "in.jsonl", .line = 3, .oversized_bytes = 5000, .oversized_prefix = prefix}, "");
    const auto& row = dynamic_cast<const RowItem&>(*item);
    REQUIRE(row.error);
    return c.format_error(row, *row.error).record;
  };
  CHECK(result_of(R"({"id": "r-1", "prompt": "yyyy)").starts_with(R"({"id":"r-1","row":2,"outputs":[])"));
  CHECK(result_of(R"({"prompt": "yyyy)").starts_with(R"({"id":2,"row":2,"outputs":[])"));
  for (const char* prefix : {R"({"custom_id": "c-1", "method": "POST", "body": {"messages": [)",
                             R"({"custom_id": "c-1", "body": {"messages": [{"role")"}) {
    const std::string record = result_of(prefix);
    CHECK_MESSAGE(record.find(R"("custom_id":"c-1","response":{"status_code":400)") != std::string::npos, record);
  }
}

TEST_CASE("an HDF5 row whose string is not UTF-8 is told by the string, a line by its JSON") {
  const Codec c = codec();
  const auto error = [&](const char* file, std::string_view record) {
    const auto item = c.encode({.row = 3, .file = file, .line = 4, .oversized_bytes = 0}, record);
    const auto& row = dynamic_cast<const RowItem&>(*item);
    REQUIRE(row.error);
    return row.error->field + ": " + row.error->message;
  };
  CHECK(error("in.h5:/text", "{\"id\":\"a\",\"prompt\":\"a\\\"\\u0001\xff b\"}") ==
        "prompt: in.h5:/text:4: prompt is not valid UTF-8 at byte 3 of the string (0xff); write UTF-8 into the file");
  CHECK(error("in.h5:/text", "{\"id\":\"\xc3\",\"prompt\":\"a\"}").starts_with("id: in.h5:/text:4: id is not valid UTF-8 at byte 0 of "));
  CHECK(error("in.jsonl", "{\"id\":\"a\",\"prompt\":\"\xff\"}").starts_with(": in.jsonl:4: invalid JSON at byte 21: "));
}

TEST_CASE("a record that is no object is shown") {
  CHECK(error_of("5") == ": in.jsonl:1: the record is 5; it must be a JSON object");
  CHECK(error_of("[1,2]") == ": in.jsonl:1: the record is [1,2]; it must be a JSON object");
  CHECK(error_of("\xEF\xBB\xBF{\"prompt\":\"x\"}") ==
        ": in.jsonl:1: invalid JSON at byte 1: a byte-order mark, which may stand at the front of a file only");
}
