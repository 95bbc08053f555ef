#include "app/rows/openai.h"

#include <doctest/doctest.h>

#include "tests/app/rows/rows_fixture.h"

using namespace tokenmill;
using namespace tokenmill::rows;
using namespace tokenmill::test;

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

TEST_CASE("what belongs into an OpenAI row's body is refused beside it; other names are the user's") {
  const Codec c = codec();
  const auto fault = [&](const std::string& beside) {
    const auto item = encode(c, R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"},)" + beside + "}");
    return item->error ? item->error->message : "";
  };
  CHECK(fault(R"("temperature":9)").find("temperature stands beside body; put it into body") != std::string::npos);
  CHECK(fault(R"("max_tokens":"x")").find("max_tokens stands beside body") != std::string::npos);
  CHECK(fault(R"("prompt":"y")").find("prompt stands beside body") != std::string::npos);
  CHECK(fault(R"("temprature":1)").find("temprature stands beside body; put it into body, as temperature") != std::string::npos);
  CHECK(fault(R"("source":"wiki","messages":1)") == "");
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
  CHECK(line(chat + R"(,"logprobs":5}})").find("logprobs is 5; it must be true or false") != std::string::npos);
  CHECK(line(chat + R"(,"top_logprobs":5}})").find("top_logprobs is 5; it needs logprobs to be true") !=
        std::string::npos);
  CHECK(line(chat + R"(,"tools":[{"type":"function"}]}})").find("tool_choice") != std::string::npos);
  CHECK(line(chat + R"(,"stream":true}})").find("stream is true") != std::string::npos);
  CHECK(line(R"({"custom_id":"a","url":"/v1/chat/completions"})").find("body is missing") != std::string::npos);
  CHECK(line(R"({"custom_id":5,"url":"/v1/completions","body":{"prompt":"x"}})").find("\"custom_id\":5,") !=
        std::string::npos);
  const std::string cut = R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x"}, "x)";
  CHECK(line(cut).find(R"("custom_id":"a","response":{"status_code":400)") != std::string::npos);
}

TEST_CASE("chat logprobs are a switch and a number, those of completions a number") {
  const auto chat = [](const std::string& fields) {
    return request_of(
               R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"x"}])" +
               fields + "}}")
        .sampling.logprobs;
  };
  CHECK_FALSE(chat(""));
  CHECK_FALSE(chat(R"(,"logprobs":false,"top_logprobs":0)"));
  CHECK(chat(R"(,"logprobs":true)") == 0);
  CHECK(chat(R"(,"top_logprobs":5,"logprobs":true)") == 5);
  CHECK(
      request_of(R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x","logprobs":3}})").sampling.logprobs ==
      3);
}

TEST_CASE("every sample is a choice, and usage counts them all") {
  const Codec c = codec();
  const auto item = encode(c, R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x","n":2}})");
  RequestOutput output = answer("one");
  output.outputs.push_back(output.outputs[0]);
  output.outputs[1].index = 1;
  output.outputs[1].text = "two";
  output.outputs[1].finish_reason = FinishReason::kRepetition;
  output.num_completion_tokens = 4;
  const std::string line = c.format(*item, output).record;
  CHECK(line.find(R"("choices":[{"index":0,"text":"one",)") != std::string::npos);
  CHECK(line.find(R"(},{"index":1,"text":"two","logprobs":null,"finish_reason":"repetition",)") != std::string::npos);
  CHECK(line.find(R"("usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13})") != std::string::npos);
}

TEST_CASE("an echoed completion begins with the prompt, in text and logprobs") {
  const Codec c = codec();
  const auto item = encode(
      c, R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"ab","echo":true,"logprobs":1,"max_tokens":0}})");
  REQUIRE_MESSAGE(!item->error, (item->error ? item->error->message : ""));
  CHECK(item->request.sampling.prompt_logprobs == 1);
  const std::vector<int32_t> ids = item->request.prompt_token_ids;
  RequestOutput output = answer("", FinishReason::kLength);
  for (size_t i = 1; i < ids.size(); ++i) output.prompt_logprobs.push_back({{ids[i], -0.5f, 2}, {120, -0.25f, 1}});
  const std::string line = c.format(*item, output).record;
  CHECK(line.find(R"("text":"ab")") != std::string::npos);
  CHECK_MESSAGE(line.find(R"("logprobs":{"tokens":["<s>",)") != std::string::npos, line);
  CHECK_MESSAGE(line.find(R"("token_logprobs":[null,-0.5)") != std::string::npos, line);
  CHECK_MESSAGE(line.find(R"("top_logprobs":[null,{"x":-0.25,")") != std::string::npos, line);
  CHECK_MESSAGE(line.find(R"("text_offset":[0,0)") != std::string::npos, line);  // the start token has no text
  CHECK(line.find("prompt_logprobs") == std::string::npos);                      // not asked for by name
}

TEST_CASE("prompt logprobs of OpenAI rows have vLLM's shape and places") {
  const Codec c = codec();
  RequestOutput output = answer("y");
  output.prompt_logprobs = {{{97, -1.5f, 3}, {98, -0.5f, 1}, {97, -1.5f, 3}}};
  const std::string list = R"("prompt_logprobs":[null,{"97":{"logprob":-1.5,"rank":3,"decoded_token":"a"},)"
                           R"("98":{"logprob":-0.5,"rank":1,"decoded_token":"b"}}])";
  const auto completion = encode(
      c,
      R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"a","prompt_logprobs":1,"return_prompt_text":true}})");
  const std::string text = c.format(*completion, output).record;
  CHECK_MESSAGE(text.find(R"("stop_reason":null,)" + list + "}]") != std::string::npos, text);
  CHECK(text.find(R"(,"prompt_text":"a"})") != std::string::npos);
  const auto chat = encode(c, R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user",)"
                              R"("content":"a"}],"prompt_logprobs":1}})");
  const std::string body = c.format(*chat, output).record;
  CHECK_MESSAGE(body.find(R"("total_tokens":11},)" + list + "}") != std::string::npos, body);
}
