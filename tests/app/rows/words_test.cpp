#include "app/rows/words.h"

#include <doctest/doctest.h>

#include "kernels/core/error.h"
#include "tests/app/rows/rows_fixture.h"

using namespace tokenmill;
using namespace tokenmill::rows;
using namespace tokenmill::test;

using Ids = std::vector<int32_t>;

TEST_CASE("a bad word is banned at the start of a text and behind a space") {
  CHECK(tokenize_bad_words(tiny_tokenizer(), {"milo"}, 272) == std::vector<Ids>{{256, 258}, {267}});  // " milo" is one token
  CHECK(tokenize_bad_words(tiny_tokenizer(), {"x"}, 272) ==
        std::vector<Ids>{{120}});  // " x" is a space and x: banned already
  CHECK(tokenize_bad_words(tiny_tokenizer(), {" x"}, 272) == std::vector<Ids>{{120}});  // words are banned bare
  const std::vector<Ids> seen = request_of(R"({"prompt":"x","bad_words":["milo","x"]})").sampling.bad_words;
  CHECK(seen == std::vector<Ids>{{256, 258}, {267}, {120}});
}

TEST_CASE("words without tokens and too many words are errors of their rows") {
  CHECK(error_of(R"({"prompt":"x","bad_words":["a","  "]})") ==
        "bad_words: in.jsonl:1: bad_words[1] is \"  \", which has no token in this vocabulary");
  std::string many = R"({"prompt":"x","bad_words":["a")";
  for (int i = 0; i < 128; ++i) many += ",\"x\"";
  CHECK(error_of(many + "]}").find("bad_words give 129 token sequences; at most 128") != std::string::npos);
}

TEST_CASE("thinking markers come from the job, else from the vocabulary") {
  const ThinkingMarkers named = find_thinking_markers(tiny_tokenizer(), "<|turn|>", "<|end|>x");
  CHECK(named.start_token_ids == Ids{270});
  CHECK(named.end_token_ids == Ids{271, 120});
  CHECK(find_thinking_markers(tiny_tokenizer(), "", "").start_token_ids.empty());
  CHECK_THROWS_WITH_AS(find_thinking_markers(tiny_tokenizer(), "a", ""),
                       "--think-start is given without --think-end; give both", Error);
}

TEST_CASE("a thinking budget takes what the prompt has opened into account; without markers it is an error") {
  CodecOptions with = options();
  const char* record = R"({"prompt_token_ids":[270,5,6],"thinking_token_budget":9})";
  CHECK(error_of(record, with)
            .starts_with("thinking_token_budget: in.jsonl:1: thinking_token_budget is 9; the model's "
                         "vocabulary has no thinking markers such as <think> and </think>"));
  with.thinking = {{270}, {271}};
  CHECK(request_of(record, with).sampling.thinking_budget == ThinkingBudget{9, {270}, {271}, 2});
  CHECK_FALSE(request_of(R"({"prompt":"x","thinking_token_budget":-1})", with).sampling.thinking_budget);
  CHECK(error_of(R"({"prompt":"x","thinking_token_budget":1,"trace_decode_token_ids":[1]})", with)
            .find("cannot go with") != std::string::npos);
}

TEST_CASE("a tokenizer with more tokens than the model has is named as what is wrong") {
  CodecOptions with = options();
  with.vocab_size = 267;
  CHECK(error_of(R"({"prompt":"x","bad_words":["x","milo"]})", with) ==
        "bad_words: in.jsonl:1: bad_words[1] is \"milo\": \" milo\" is token 267 of the tokenizer, and the model's "
        "vocabulary is smaller, it ends at 266: the tokenizer belongs to another model");
  CHECK(error_of(R"({"prompt":"a milo","add_special_tokens":false})", with) ==
        "prompt: in.jsonl:1: prompt: \" milo\" is token 267 of the tokenizer, and the model's vocabulary is smaller, it "
        "ends at 266: the tokenizer belongs to another model");
  CHECK(error_of(R"({"messages":[{"role":"user","content":"a milo"}]})", with).starts_with("messages: in.jsonl:1: messages: "));
  CHECK(error_of(R"({"prompt":"mil","add_special_tokens":false,"bad_words":["x"]})", with).empty());
}
