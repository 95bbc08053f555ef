#include "app/rows/prompt.h"

#include <doctest/doctest.h>

#include "tests/app/rows/rows_fixture.h"

using namespace tokenmill;
using namespace tokenmill::rows;
using namespace tokenmill::test;

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

namespace {

/// "zzzz...": one token for each letter, behind the start token.
std::string letters(int count, const std::string& fields) {
  return R"({"prompt":")" + std::string(static_cast<size_t>(count), 'z') + "\"" + fields + "}";
}

std::vector<int32_t> prompt_of(const std::string& record, int64_t max_model_len = 256,
                               Overlong overlong = Overlong::kError) {
  CodecOptions with = options();
  with.max_model_len = max_model_len;
  with.overlong = overlong;
  return request_of(record, with).prompt_token_ids;
}

}  // namespace

TEST_CASE("truncate_prompt_tokens keeps the end of a prompt, or its beginning") {
  const std::string ids = R"({"prompt_token_ids":[1,2,3,4,5],"truncate_prompt_tokens":)";
  CHECK(prompt_of(ids + "3}") == std::vector<int32_t>{3, 4, 5});
  CHECK(prompt_of(ids + R"(3,"truncation_side":"right"})") == std::vector<int32_t>{1, 2, 3});
  CHECK(prompt_of(ids + "9}") == std::vector<int32_t>{1, 2, 3, 4, 5});
  CHECK(prompt_of(ids + R"(-1,"max_tokens":4})", 8) == std::vector<int32_t>{2, 3, 4, 5});
  CHECK(prompt_of(ids + R"(-1,"max_tokens":100})", 8) == std::vector<int32_t>{5});
  CHECK(prompt_of(ids + "0}").empty());  // the engine refuses it
  CodecOptions with = options();
  CHECK(
      error_of(ids + "257}", with) ==
      "truncate_prompt_tokens: in.jsonl:1: truncate_prompt_tokens is 257; it must be at most 256, the model's length");
}

TEST_CASE("the start token survives a cut on the left of a text") {
  text::TokenizerConfig config;
  config.bos_token = "<s>";
  const text::Tokenizer tokenizer = text::load_tokenizer_json(
      io::parse_json_file(std::string(TM_TEST_DATA) + "/cases/tiny_bpe.json"), config, "tiny_bpe.json");
  const Codec c(tokenizer, {}, options());
  const auto cut = [&](const std::string& fields) { return encode(c, letters(6, fields))->request.prompt_token_ids; };
  CHECK(cut(R"(,"truncate_prompt_tokens":3)") == std::vector<int32_t>{268, 122, 122});
  CHECK(cut(R"(,"truncate_prompt_tokens":3,"truncation_side":"right")") == std::vector<int32_t>{268, 122, 122});
  CHECK(cut(R"(,"truncate_prompt_tokens":3,"add_special_tokens":false)") == std::vector<int32_t>{122, 122, 122});
}

TEST_CASE("overlong prompts are left to the engine, cut, or skipped, as the job says") {
  const std::string ids = R"({"prompt_token_ids":[1,2,3,4,5,6],"max_tokens":2)";
  CHECK(prompt_of(ids + "}", 6).size() == 6);
  CHECK(prompt_of(ids + "}", 6, Overlong::kTruncateLeft) == std::vector<int32_t>{3, 4, 5, 6});
  CHECK(prompt_of(ids + "}", 6, Overlong::kTruncateRight) == std::vector<int32_t>{1, 2, 3, 4});
  CHECK(prompt_of(ids + "}", 7, Overlong::kTruncateLeft).size() == 6);  // fits with one token to generate
  CHECK(
      prompt_of(R"({"prompt_token_ids":[1,2,3,4,5,6],"max_tokens":0,"prompt_logprobs":1})", 6, Overlong::kTruncateLeft)
          .size() == 6);  // scoring generates nothing
  CodecOptions with = options();
  with.max_model_len = 6;
  with.overlong = Overlong::kSkip;
  const Codec c = codec(with);
  CHECK_FALSE(encode(c, ids + "}")->skipped.empty());
  CHECK(encode(c, R"({"prompt_token_ids":[1,2,3]})")->skipped.empty());
  CHECK(c.num_skipped() == 1);
}

TEST_CASE("echo gives back the prompt's text, of a chat its final message when it is the assistant's") {
  const Codec c = codec();
  const auto text = [&](const std::string& record) { return encode(c, record)->echo_text; };
  CHECK(text(R"({"prompt":"a <|end|>","echo":true})") == "a <|end|>");
  CHECK(text(R"({"prompt":"ab"})").empty());
  CHECK(text(R"({"prompt_token_ids":[97,98],"echo":true})") == "ab");
  CHECK(text(R"({"prompt":"abcdef","echo":true,"truncate_prompt_tokens":2})") == "ef");
  const std::string chat = R"({"echo":true,"messages":[{"role":"user","content":"q"})";
  CHECK(text(chat + "]}").empty());
  CHECK(text(chat + R"(,{"role":"assistant","content":"so "}]})") == "so ");
  const auto item = encode(c, R"({"prompt":"ab","echo":true})");
  CHECK(c.format(*item, answer("cd")).record.find(R"("text":"abcd")") != std::string::npos);
  CHECK(error_of(R"({"prompt":"ab","echo":true,"detokenize":false})") ==
        "echo: in.jsonl:1: echo is true and detokenize is false, so there is no text for the prompt's to stand before; "
        "drop one");
}

TEST_CASE("prompts that max_tokens leaves one token of are counted") {
  CodecOptions with = options();
  with.max_model_len = 6;
  with.overlong = Overlong::kTruncateLeft;
  const Codec c = codec(with);
  CHECK(encode(c, R"({"prompt_token_ids":[1,2,3,4,5,6],"max_tokens":6})")->request.prompt_token_ids == std::vector<int32_t>{6});
  CHECK(encode(c, R"({"prompt_token_ids":[1,2,3,4,5,6],"max_tokens":4})")->request.prompt_token_ids.size() == 2);
  CHECK(encode(c, R"({"prompt_token_ids":[1],"max_tokens":6})")->request.prompt_token_ids.size() == 1);
  CHECK(c.num_truncated() == 2);
  CHECK(c.num_cut_to_one() == 1);
}
