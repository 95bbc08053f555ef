#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

#include "app/rows/codec.h"
#include "app/rows/id_census.h"
#include "app/rows/scan.h"
#include "engine/text/tokenizer_loader.h"
#include "io/file.h"
#include "kernels/core/error.h"

using namespace tokenmill;
using namespace tokenmill::rows;

namespace {

const text::Tokenizer& tiny_tokenizer() {
  static const text::Tokenizer tokenizer = text::load_tokenizer_json(
      io::parse_json_file(std::string(TM_TEST_DATA) + "/cases/tiny_bpe.json"), {}, "tiny_bpe.json");
  return tokenizer;
}

CodecOptions options() { return {.vocab_size = 272, .seed = 7, .max_record_bytes = 1024, .openai = {"tiny", 0}}; }

Codec codec(CodecOptions with = options()) {
  return Codec(
      tiny_tokenizer(),
      [](const text::ChatRequest& chat) {
        std::string text;
        for (const io::JsonValue& message : chat.messages.items()) {
          if (message.at("role").as_string() == "wizard")
            throw BadRow{"invalid_request", "messages", "unknown role: wizard"};
          text += message.at("role").as_string() + ":" + message.at("content").as_string() + "\n";
        }
        return text;
      },
      std::move(with));
}

std::unique_ptr<RowItem> encode(const Codec& codec, std::string_view record, int64_t row = 0) {
  auto item = codec.encode({.row = row, .file = "in.jsonl", .line = row + 1, .oversized_bytes = 0}, record);
  return std::unique_ptr<RowItem>(dynamic_cast<RowItem*>(item.release()));
}

/// "field: message" of a row that must fail; "" when it does not.
std::string error_of(std::string_view record, CodecOptions with = options()) {
  const auto item = encode(codec(std::move(with)), record);
  return item->error ? item->error->field + ": " + item->error->message : "";
}

Request request_of(std::string_view record, CodecOptions with = options()) {
  const auto item = encode(codec(std::move(with)), record);
  REQUIRE_MESSAGE(!item->error, (item->error ? item->error->message : ""));
  return item->request;
}

RequestOutput answer(const std::string& text, FinishReason reason = FinishReason::kStop) {
  RequestOutput output;
  output.outputs.push_back({.index = 0,
                            .text = text,
                            .token_ids = {5, 6},
                            .finish_reason = reason,
                            .stop_reason = std::monostate{},
                            .cumulative_logprob = -3.25});
  output.num_prompt_tokens = 9;
  output.num_completion_tokens = 2;
  return output;
}

std::vector<std::string> lines_of(const std::string& name) {
  std::vector<std::string> lines(1);
  for (const char c : io::read_file(std::string(TM_TEST_DATA) + "/cases/" + name, 1 << 20))
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += c;
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace

TEST_CASE("a native result has the documented members in their order") {
  const Codec c = codec();
  auto item = encode(c, R"({"id": 18446744073709551617, "prompt": "ab"})", 17);
  CHECK(
      c.format(*item, answer("x\"y")).record ==
      R"({"id":18446744073709551617,"row":17,"outputs":[{"index":0,"text":"x\"y","finish_reason":"stop",)"
      R"("stop_reason":null,"cumulative_logprob":-3.25}],"usage":{"prompt_tokens":9,"completion_tokens":2},"error":null})");
  item = encode(c, R"({"prompt": "ab", "return_token_ids": true})", 3);
  RequestOutput stopped = answer("x");
  stopped.outputs[0].stop_reason = std::string("st\0p", 4);
  CHECK(c.format(*item, stopped).record ==
        R"({"id":3,"row":3,"outputs":[{"index":0,"text":"x","token_ids":[5,6],"finish_reason":"stop",)"
        R"("stop_reason":"st\u0000p","cumulative_logprob":-3.25}],"usage":{"prompt_tokens":9,"completion_tokens":2},)"
        R"("error":null})");
  stopped.outputs[0].stop_reason = 271;
  CHECK(c.format(*item, stopped).record.find("\"stop_reason\":271,") != std::string::npos);
}

TEST_CASE("a failed native row names file, line, field and what is allowed") {
  const Codec c = codec();
  const auto item = encode(c, R"({"id": "r7", "prompt": "good", "temperature": -1})", 18);
  REQUIRE(item->error);
  const jobs::FinishedRow row = c.format_error(*item, *item->error);
  CHECK(row.failed);
  CHECK(row.record ==
        R"({"id":"r7","row":18,"outputs":[],"usage":null,"error":{"code":"invalid_request",)"
        R"("field":"temperature","message":"in.jsonl:19: temperature is -1; it must be between 0 and 2"}})");
}

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
  CHECK(error_of(lines[7]) == "max_tokens: in.jsonl:1: max_tokens is 99999999999999999999; it is out of range, at most 9223372036854775807");
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

TEST_CASE("fields that cannot be honoured are errors by name, except at their neutral value") {
  CHECK(error_of(R"({"prompt":"x","presence_penalty":0.5})") ==
        "presence_penalty: in.jsonl:1: presence_penalty is 0.5; this version supports only 0");
  CHECK(error_of(R"({"prompt":"x","n":2})") == "n: in.jsonl:1: n is 2; this version supports only 1");
  CHECK(error_of(R"({"prompt":"x","prompt_logprobs":1})") ==
        "prompt_logprobs: in.jsonl:1: prompt_logprobs is 1; this version supports no value here: leave it out");
  CHECK(error_of(R"({"prompt":"x","truncate_prompt_tokens":5})").find("truncate_prompt_tokens") == 0);
  CHECK(error_of(R"({"prompt":"x","n":1,"presence_penalty":0.0,"repetition_penalty":1,"logprobs":null,"min_tokens":0,
                     "bad_words":[],"logit_bias":{},"detokenize":true,"use_beam_search":false})") == "");
}

TEST_CASE("a native row's sampling is an object or null") {
  for (const auto& [value, kind] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "a list"}, {"true", "true"}, {"5", "5"}, {"\"x\"", "\"x\""}})
    CHECK(error_of(R"({"prompt":"x","sampling":)" + value + "}") ==
          "sampling: in.jsonl:1: sampling is " + kind + "; it must be an object");
  CHECK(error_of(R"({"prompt":"x","sampling":null})").empty());
}

TEST_CASE("a native row may use the newer name of max_tokens, not two different limits") {
  CHECK(request_of(R"({"messages":[{"role":"user","content":"x"}],"max_completion_tokens":5})").sampling.max_tokens == 5);
  CHECK(request_of(R"({"prompt":"x","max_completion_tokens":5,"max_tokens":5})").sampling.max_tokens == 5);
  CHECK(request_of(R"({"prompt":"x","sampling":{"max_completion_tokens":6}})").sampling.max_tokens == 6);
  for (const char* record : {R"({"prompt":"x","max_completion_tokens":5,"max_tokens":6})",
                             R"({"prompt":"x","sampling":{"max_completion_tokens":5},"max_tokens":6})"})
    CHECK(error_of(record) == "max_completion_tokens: in.jsonl:1: max_completion_tokens is 5 and max_tokens is 6; "
                              "they mean the same: keep one");
}

TEST_CASE("known names that a native row cannot have honoured are errors, unknown ones are columns") {
  for (const char* name : {"max_new_tokens", "min_new_tokens", "min_tokens", "sampling_seed", "top_logprobs",
                           "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs",
                           "echo", "priority", "truncate_prompt_tokens", "suffix", "function_call"}) {
    const std::string error = error_of(fmt::format(R"({{"prompt":"x","{}":7}})", name));
    CHECK_MESSAGE(error.starts_with(fmt::format("{0}: in.jsonl:1: {0} is 7; ", name)), error);
    CHECK(error_of(fmt::format(R"({{"prompt":"x","{}":null}})", name)).empty());
  }
  CHECK(error_of(R"({"prompt":"x","max_new_tokens":7})").ends_with("this version's name for it is max_tokens"));
  CHECK(error_of(R"({"prompt":"x","min_new_tokens":0,"customer":7})").empty());
}

TEST_CASE("every sampling field lands in the request") {
  const Request r = request_of(
      R"({"prompt":"x","temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":42,"max_tokens":9,"stop":"a",
          "stop_token_ids":[1,2],"include_stop_str_in_output":true,"ignore_eos":true,"skip_special_tokens":false})");
  CHECK(r.sampling == SamplingParams{.temperature = 0.5,
                                     .top_p = 0.9,
                                     .top_k = 40,
                                     .min_p = 0.1,
                                     .seed = 42,
                                     .max_tokens = 9,
                                     .stop = {"a"},
                                     .stop_token_ids = {1, 2},
                                     .include_stop_str_in_output = true,
                                     .ignore_eos = true,
                                     .skip_special_tokens = false});
  CHECK(request_of(R"({"prompt":"x","sampling":{"top_k":3}})").sampling.top_k == 3);
  CHECK(error_of(R"({"prompt":"x","top_k":2,"sampling":{"top_k":3}})").find("top_k is given at top level and") !=
        std::string::npos);
  CHECK(error_of(R"({"prompt":"x","sampling":{"topk":3}})").find("did you mean top_k?") != std::string::npos);
}

TEST_CASE("values of the wrong type say what is wanted") {
  CHECK(error_of(R"({"prompt":"x","temperature":"hot"})") ==
        "temperature: in.jsonl:1: temperature is \"hot\"; it must be a number");
  CHECK(error_of(R"({"prompt":"x","stop":[1]})") ==
        "stop: in.jsonl:1: stop is [1]; it must be a string or a list of strings");
  CHECK(error_of(R"({"prompt":"x","stop":""})").find("empty string") != std::string::npos);
  CHECK(error_of(R"({"prompt":"x","stop_token_ids":[272]})").find("between 0 and 271") != std::string::npos);
  CHECK(error_of(R"({"prompt":"x","ignore_eos":1})").find("it must be true or false") != std::string::npos);
  CHECK(error_of(R"({"id":[1],"prompt":"x"})") == "id: in.jsonl:1: id is [1]; it must be a string or a number");
  CHECK(error_of(R"({"prompt":"x","messages":[{"role":"user","content":"y"}]})").find("both given") !=
        std::string::npos);
  CHECK(error_of(R"({"prompt_token_ids":[1,-1]})").find("prompt_token_ids[1] is -1") != std::string::npos);
  CHECK(error_of(R"([1])") == ": in.jsonl:1: the record is array; it must be a JSON object");
}

TEST_CASE("max_tokens: 16 for plain prompts, what is left for chats, the job's value for both") {
  const char* chat = R"({"messages":[{"role":"user","content":"x"}]})";
  CHECK(request_of(R"({"prompt":"x"})").sampling.max_tokens == 16);
  CHECK(request_of(R"({"prompt":"x","max_tokens":null})").sampling.max_tokens == 16);
  CHECK_FALSE(request_of(chat).sampling.max_tokens);
  CodecOptions with = options();
  with.defaults.max_tokens = 5;
  CHECK(request_of(R"({"prompt":"x"})", with).sampling.max_tokens == 5);
  CHECK(request_of(chat, with).sampling.max_tokens == 5);
  CHECK(request_of(R"({"prompt":"x","max_tokens":7})", with).sampling.max_tokens == 7);
}

TEST_CASE("chats are rendered and get no second start token; what the renderer refuses is the row's error") {
  CHECK(request_of(R"({"messages":[{"role":"user","content":"a"}]})").prompt_token_ids ==
        tiny_tokenizer().encode("user:a\n", {.add_special_tokens = false}));
  CHECK(request_of(R"({"messages":[{"role":"user","content":"a"}],"add_special_tokens":true})").prompt_token_ids ==
        tiny_tokenizer().encode("user:a\n", {.add_special_tokens = true}));
  CHECK(request_of(R"({"prompt":"x"})").prompt_token_ids == tiny_tokenizer().encode("x"));
  CHECK(error_of(R"({"messages":[{"role":"wizard","content":"x"}]})") == "messages: in.jsonl:1: unknown role: wizard");
  const Codec without(tiny_tokenizer(), {}, options());
  const auto item = encode(without, R"({"messages":[{"role":"user","content":"x"}]})");
  REQUIRE(item->error);
  CHECK(item->error->message.find("--chat-template") != std::string::npos);
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

TEST_CASE("passthrough repeats the members asked for, in results and errors") {
  CodecOptions with = options();
  with.passthrough = {"label", "missing"};
  const Codec c = codec(with);
  const auto good = encode(c, R"({"id":1,"prompt":"x","label":{"a":[1]},"other":2})");
  CHECK(c.format(*good, answer("y")).record.ends_with(R"("error":null,"input":{"label":{"a":[1]}}})"));
  const auto bad = encode(c, R"({"id":1,"prompt":3,"label":7})");
  REQUIRE(bad->error);
  CHECK(c.format_error(*bad, *bad->error).record.ends_with(R"(,"input":{"label":7}})"));
}

TEST_CASE("oversized records are errors with both numbers") {
  const auto item = codec().encode({.row = 2, .file = "in.jsonl", .line = 3, .oversized_bytes = 5000}, "");
  const auto& row = dynamic_cast<const RowItem&>(*item);
  REQUIRE(row.error);
  CHECK(row.error->code == "record_too_large");
  CHECK(row.error->message == "in.jsonl:3: the record has 5000 bytes; --max-record-bytes is 1024");
  CHECK(row.id_json == "2");
}

TEST_CASE("an oversized record keeps the id and the shape that its beginning shows") {
  const Codec c = codec();
  const auto result_of = [&](std::string_view prefix) {
    const auto item = c.encode(
        {.row = 2, .file = "in.jsonl", .line = 3, .oversized_bytes = 5000, .oversized_prefix = prefix}, "");
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

TEST_CASE("an OpenAI chat row gets an answer of OpenAI's shape, made of the record alone") {
  const Codec c = codec();
  const std::string record =
      R"({"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user",)"
      R"("content":"hi"}],"max_tokens":3,"max_completion_tokens":5,"user":"u","stream":false}})";
  const auto item = encode(c, record, 8);
  REQUIRE_MESSAGE(!item->error, (item->error ? item->error->message : ""));
  CHECK(item->request.sampling.max_tokens == 5);
  const std::string d = record_digest(record);
  CHECK(
      c.format(*item, answer("yes")).record ==
      "{\"id\":\"batch_req_" + d + R"(","custom_id":"a","response":{"status_code":200,"request_id":"req_)" + d +
          R"(","body":{"id":"chatcmpl-)" + d +
          R"(","object":"chat.completion","created":0,"model":"tiny","choices":[{"index":0,"message":{"role":)"
          R"("assistant","content":"yes","refusal":null},"logprobs":null,"finish_reason":"stop","stop_reason":null}],)"
          R"("usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}},"error":null})");
}

TEST_CASE("an OpenAI completion row takes text, ids, or a list of one prompt") {
  const auto row = [](const std::string& prompt) {
    return R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":)" + prompt + "}}";
  };
  const std::vector<int32_t> x = tiny_tokenizer().encode("x");
  CHECK(request_of(row("\"x\"")).prompt_token_ids == x);
  CHECK(request_of(row("[\"x\"]")).prompt_token_ids == x);
  CHECK(request_of(row("[7,8]")).prompt_token_ids == std::vector<int32_t>{7, 8});
  CHECK(request_of(row("[[7,8]]")).prompt_token_ids == std::vector<int32_t>{7, 8});
  CHECK(request_of(row("\"x\"")).sampling.max_tokens == 16);
  CHECK(error_of(row("[\"x\",\"y\"]")).find("one a row") != std::string::npos);
  const Codec c = codec();
  const auto item = encode(c, row("\"x\""));
  const std::string line = c.format(*item, answer("y", FinishReason::kLength)).record;
  CHECK(line.find(R"("object":"text_completion")") != std::string::npos);
  CHECK(line.find(R"("choices":[{"index":0,"text":"y","logprobs":null,"finish_reason":"length")") != std::string::npos);
}

TEST_CASE("a failed OpenAI row has its error inside the response") {
  const Codec c = codec();
  const auto line = [&](const std::string& record) {
    const auto item = encode(c, record);
    REQUIRE(item->error);
    return c.format_error(*item, *item->error).record;
  };
  const std::string record = R"({"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"input":"x"}})";
  CHECK(line(record) ==
        "{\"id\":\"batch_req_" + record_digest(record) +
            R"(","custom_id":"a","response":{"status_code":400,"request_id":"req_)" + record_digest(record) +
            R"(","body":{"error":{"message":"in.jsonl:1: url is \"/v1/embeddings\"; this version supports )"
            R"(/v1/chat/completions and /v1/completions","type":"invalid_request_error","param":"url",)"
            R"("code":"invalid_request"}}},"error":null})");
  const std::string chat = R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user",)"
                           R"("content":"x"}])";
  CHECK(line(chat + R"(,"temprature":1}})").find("did you mean temperature?") != std::string::npos);
  CHECK(line(chat + R"(,"logprobs":true}})").find("logprobs is true") != std::string::npos);
  CHECK(line(chat + R"(,"tools":[{"type":"function"}]}})").find("tool_choice") != std::string::npos);
  CHECK(line(chat + R"(,"stream":true}})").find("stream is true") != std::string::npos);
  CHECK(line(R"({"custom_id":"a","url":"/v1/chat/completions"})").find("body is missing") != std::string::npos);
  CHECK(line(R"({"custom_id":5,"url":"/v1/completions","body":{"prompt":"x"}})").find("\"custom_id\":5,") !=
        std::string::npos);
  const std::string cut = R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x"}, "x)";
  CHECK(line(cut).find(R"("custom_id":"a","response":{"status_code":400)") != std::string::npos);
}

TEST_CASE("a custom_id that an earlier row has is an error; repeated native ids are counted") {
  const std::string first = R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x"}})";
  const std::string again = R"({"url":"/v1/completions","custom_id":"\u0061","body":{"prompt":"y"}})";
  IdCensus census;
  census.add(0, first);
  census.add(1, R"({"id":"a","prompt":"x"})");
  census.add(2, again);
  census.add(3, R"({"id":"a","prompt":"y"})");
  census.add(4, R"({"prompt":"y"})");
  census.add(5, R"({"id":1,"prompt":"y"})");
  census.add(6, R"({"id":"1","prompt":"y"})");
  CHECK(census.num_repeated_ids() == 1);
  CHECK(census.repeated_custom_ids() == std::unordered_map<int64_t, int64_t>{{2, 0}});
  CHECK(IdCensus::deserialize(census.serialize()) == census.repeated_custom_ids());
  CHECK(census.complete());
  CodecOptions with = options();
  with.repeated_custom_ids = census.repeated_custom_ids();
  const Codec c = codec(with);
  CHECK_FALSE(encode(c, first, 0)->error);
  const auto item = encode(c, again, 2);
  REQUIRE(item->error);
  CHECK(item->error->message == "in.jsonl:3: custom_id \"a\" is that of row 0 too; it must be unique");
}

TEST_CASE("the census stops at its limit and says so") {
  IdCensus census(3);
  for (int i = 0; i < 5; ++i) census.add(i, R"({"id":)" + std::to_string(i) + "}");
  CHECK_FALSE(census.complete());
}

TEST_CASE("the hash set holds what it was given across growth") {
  HashSet64 set;
  for (uint64_t i = 0; i < 5000; ++i) CHECK(set.insert(i * 0x9e3779b97f4a7c15u));
  for (uint64_t i = 0; i < 5000; ++i) CHECK_FALSE(set.insert(i * 0x9e3779b97f4a7c15u));
  CHECK(set.size() == 5000);
}

TEST_CASE("scanning finds members in whole and damaged records") {
  const std::string_view record = R"( { "a" : "x\"}" , "id": 12 ,"n":{"id":[1,"]"]},"id" : "z" } )";
  CHECK(scan_member(record, "id") == "\"z\"");
  CHECK(scan_member(record, "a") == R"("x\"}")");
  CHECK(scan_member(record, "n") == R"({"id":[1,"]"]})");
  CHECK(scan_member(record, "b").empty());
  CHECK(scan_member(R"({"id":"r1","prompt":"cut short)", "id") == "\"r1\"");
  CHECK(scan_member(R"({"id":"r1)", "id").empty());
  CHECK(scan_member("[1]", "id").empty());
  CHECK(prompt_bytes(R"({"id":1,"prompt":"ab\nc","x":2})") == R"(ab\nc)");
  CHECK(prompt_bytes(R"({"custom_id":"a","body":{"model":"m","messages":[{"role":"u"}]}})") == R"([{"role":"u"}])");
  CHECK(prompt_bytes("no json").empty());
  std::string deep;
  for (int i = 0; i < 300'000; ++i) deep += R"({"body":)";
  deep += R"({"prompt":"x"})" + std::string(300'000, '}');
  CHECK(prompt_bytes(deep).empty());
  for (size_t length = 0; length <= record.size(); ++length) scan_member(record.substr(0, length), "id");  // no crash
}
