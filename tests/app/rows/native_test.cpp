#include "app/rows/native.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/app/rows/rows_fixture.h"

using namespace tokenmill;
using namespace tokenmill::rows;
using namespace tokenmill::test;

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

TEST_CASE("a native row's sampling is an object or null") {
  for (const auto& [value, kind] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "a list"}, {"true", "true"}, {"5", "5"}, {"\"x\"", "\"x\""}})
    CHECK(error_of(R"({"prompt":"x","sampling":)" + value + "}") ==
          "sampling: in.jsonl:1: sampling is " + kind + "; it must be an object");
  CHECK(error_of(R"({"prompt":"x","sampling":null})").empty());
}

TEST_CASE("what is no sampling parameter is sent out of sampling, whether the row has it too or not") {
  for (const char* record : {R"({"sampling":{"prompt":"y"}})", R"({"prompt":"x","sampling":{"prompt":"y"}})"})
    CHECK(error_of(record) ==
          "prompt: in.jsonl:1: prompt stands under sampling; it belongs to the row itself, beside sampling");
  CHECK(error_of(R"({"prompt":"x","sampling":{"id":3}})").starts_with("id: in.jsonl:1: id stands under sampling"));
  CHECK(error_of(R"({"sampling":{"top_k":1}})").find("field \"prompt\" is missing") != std::string::npos);
}

TEST_CASE("a native row may use the newer name of max_tokens, not two different limits") {
  CHECK(request_of(R"({"messages":[{"role":"user","content":"x"}],"max_completion_tokens":5})").sampling.max_tokens ==
        5);
  CHECK(request_of(R"({"prompt":"x","max_completion_tokens":5,"max_tokens":5})").sampling.max_tokens == 5);
  CHECK(request_of(R"({"prompt":"x","sampling":{"max_completion_tokens":6}})").sampling.max_tokens == 6);
  for (const char* record : {R"({"prompt":"x","max_completion_tokens":5,"max_tokens":6})",
                             R"({"prompt":"x","sampling":{"max_completion_tokens":5},"max_tokens":6})"})
    CHECK(error_of(record) ==
          "max_completion_tokens: in.jsonl:1: max_completion_tokens is 5 and max_tokens is 6; "
          "they mean the same: keep one");
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

TEST_CASE("logprobs, prompt logprobs and the prompt's text stand where they are documented") {
  const Codec c = codec();
  RequestOutput output = answer("x");
  output.outputs[0].logprobs = {{{120, -0.25f, 1}, {120, -0.25f, 1}, {121, -2.0f, 2}}};
  output.prompt_logprobs = {{{98, -1.5f, 4}}};
  const auto rich = encode(c, R"({"id":1,"prompt":"b","logprobs":2,"prompt_logprobs":0,"return_prompt_text":true})");
  CHECK(c.format(*rich, output).record ==
        R"({"id":1,"row":0,"outputs":[{"index":0,"text":"x","finish_reason":"stop","stop_reason":null,)"
        R"("cumulative_logprob":-3.25,"logprobs":[{"id":120,"token":"x","logprob":-0.25,"rank":1,"top":[{"id":120,)"
        R"("token":"x","logprob":-0.25,"rank":1},{"id":121,"token":"y","logprob":-2,"rank":2}]}]}],)"
        R"("usage":{"prompt_tokens":9,"completion_tokens":2},"error":null,)"
        R"("prompt_logprobs":[null,{"id":98,"token":"b","logprob":-1.5,"rank":4}],"prompt_text":"b"})");
  const auto flat = encode(c, R"({"id":1,"prompt":"b","logprobs":2,"prompt_logprobs":0,"flat_logprobs":true})");
  const std::string line = c.format(*flat, output).record;
  CHECK_MESSAGE(
      line.find(R"("logprobs":{"start_indices":[0],"end_indices":[3],"token_ids":[120,120,121],)"
                R"("logprobs":[-0.25,-0.25,-2],"ranks":[1,1,2],"decoded_tokens":["x","x","y"]})") != std::string::npos,
      line);
  CHECK_MESSAGE(line.find(R"("prompt_logprobs":{"start_indices":[0,0],"end_indices":[0,1],"token_ids":[98],)") !=
                    std::string::npos,
                line);
  const auto plain = encode(c, R"({"id":1,"prompt":"b"})");
  CHECK(c.format(*plain, output).record.find("logprobs\":[") == std::string::npos);
}

TEST_CASE("logprobs of listed ids are rows of numbers, null where none was listed") {
  const Codec c = codec();
  RequestOutput output = answer("y");
  output.prompt_token_id_logprobs = {-0.5f, -1.25f, -2.0f, -std::numeric_limits<float>::infinity()};
  const auto item = encode(c, R"({"id":1,"prompt":"abc","prompt_logprob_token_ids":[[5,6],[7]]})");
  const std::string line = c.format(*item, output).record;
  CHECK_MESSAGE(line.ends_with(R"("error":null,"prompt_token_id_logprobs":[[-0.5,-1.25],[-2,null]]})"), line);
}

TEST_CASE("a skipped row says why and counts as no error") {
  CodecOptions with = options();
  with.max_model_len = 8;
  with.overlong = Overlong::kSkip;
  const Codec c = codec(with);
  const auto item = encode(c, R"({"id":"long","prompt":"zzzzzzzzzzzz"})", 4);
  REQUIRE(!item->error);
  const jobs::FinishedRow row = c.format_skipped(*item);
  CHECK_FALSE(row.failed);
  CHECK(row.record == R"({"id":"long","row":4,"outputs":[],"usage":null,"error":null,"skipped":{"field":"prompt",)"
                      R"("message":"in.jsonl:5: prompt has 13 tokens; at most 7 fit in --max-model-len 8"}})");
  CHECK(c.num_skipped() == 1);
  const auto chat = encode(c, R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user",)"
                              R"("content":"zzzzzzzzz"}]}})");
  const std::string body = c.format_skipped(*chat).record;
  CHECK_MESSAGE(
      body.find(R"("choices":[{"index":0,"message":{"role":"assistant","content":"","refusal":null},)"
                R"("logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":{"prompt_tokens":0,)"
                R"("completion_tokens":0,"total_tokens":0},"skipped":{"param":"messages","message":"in.jsonl:1: )") !=
          std::string::npos,
      body);
}
