#include <doctest/doctest.h>

#include <random>
#include <thread>

#include "engine/text/tokenizer_loader.h"
#include "io/utf8.h"
#include "tests/engine/text/fixture.h"

using namespace tokenmill;
using namespace tokenmill::text;

namespace {

const std::vector<std::string> kKinds = {"gpt2",      "llama3",        "qwen2",   "spm_llama2",
                                         "spm_gemma", "spm_metaspace", "unknowns"};

std::string one_by_one(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const DecodeOptions& options,
                       std::string& certain) {
  Detokenizer detokenizer(tokenizer, options);
  std::string out;
  for (const int32_t id : ids) detokenizer.push(id, out);
  certain = out;
  detokenizer.finish(out);
  return out;
}

}  // namespace

TEST_CASE("ids decoded one at a time give the text of all at once, for any ids") {
  std::mt19937 random(5);
  for (const std::string& kind : kKinds) {
    const Tokenizer tokenizer = fixture::tokenizer(kind);
    // Every id, ids without a token, and the byte tokens often: they make broken characters.
    std::uniform_int_distribution<int32_t> any(-2, tokenizer.vocab_size() + 2);
    std::uniform_int_distribution<int32_t> bytes(0, 270);
    for (int round = 0; round < 600; ++round) {
      std::vector<int32_t> ids(random() % 20);
      for (int32_t& id : ids) id = random() % 2 ? any(random) : bytes(random);
      const DecodeOptions options{.skip_special_tokens = round % 2 == 0,
                                  .spaces_between_special_tokens = round % 3 == 0};
      const std::string at_once = tokenizer.decode(ids, options);
      std::string certain;
      CAPTURE(kind);
      CHECK(one_by_one(tokenizer, ids, options, certain) == at_once);
      CHECK(io::find_invalid_utf8(at_once) == std::string::npos);
      // What was released early stands whatever follows.
      ids.push_back(any(random));
      CHECK(tokenizer.decode(ids, options).starts_with(certain));
    }
  }
}

TEST_CASE("text is released as soon as its characters are complete") {
  const Tokenizer tokenizer = fixture::tokenizer("spm_llama2");
  Detokenizer detokenizer(tokenizer);
  std::string out;
  const auto push = [&](std::string_view token) {
    out.clear();
    detokenizer.push(tokenizer.token_to_id(token).value(), out);
    return out;
  };
  CHECK(push("<0x0A>") == "\n");  // a stop string of one byte token is seen at once
  CHECK(push("<0xF0>").empty());
  CHECK(push("<0x9F>").empty());
  CHECK(push("<0x99>").empty());
  CHECK(push("<0x82>") == "\U0001F642");
  CHECK(push("<0xE4>").empty());
  CHECK(push("<0x41>") ==
        "\uFFFD"
        "A");
  CHECK(push("<0xE4>").empty());
  CHECK(push("a") ==
        "\uFFFD"
        "a");
  out.clear();
  detokenizer.finish(out);
  CHECK(out.empty());
}

TEST_CASE("each byte of a broken character is one U+FFFD where bytes are tokens, and good characters stay") {
  const Tokenizer tokenizer = fixture::tokenizer("spm_gemma");
  const auto ids = [&](std::vector<std::string> tokens) {
    std::vector<int32_t> out;
    for (const std::string& token : tokens) out.push_back(tokenizer.token_to_id(token).value());
    return out;
  };
  const std::string bad = "\uFFFD";
  CHECK(tokenizer.decode(ids({"<0xF0>", "<0x9F>", "<0x99>"})) == bad + bad + bad);
  CHECK(tokenizer.decode(ids({"<0x41>", "<0xFF>", "<0xC3>", "<0xA9>"})) == "A" + bad + "\u00E9");
}

TEST_CASE("a finished detokenizer starts anew") {
  const Tokenizer tokenizer = fixture::tokenizer("spm_llama2");
  const std::vector<int32_t> ids = tokenizer.encode("the water", {.add_special_tokens = false});
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = true});
  for (int round = 0; round < 2; ++round) {
    std::string out;
    for (const int32_t id : ids) detokenizer.push(id, out);
    detokenizer.finish(out);
    CHECK(out == "the water");
  }
}

TEST_CASE("texts of a megabyte in one piece are encoded and decoded") {
  for (const std::string kind : {"gpt2", "spm_gemma"}) {
    const Tokenizer tokenizer = fixture::tokenizer(kind);
    for (const std::string unit : {"a", " ", "\u0301", "\U0001F642"}) {
      std::string text;
      while (text.size() < (1 << 20)) text += unit;
      CAPTURE(kind);
      CAPTURE(unit);
      CHECK((tokenizer.decode(tokenizer.encode(text, {.add_special_tokens = false})) == text));
    }
  }
}

TEST_CASE("many threads share one tokenizer, and one thread many tokenizers") {
  const Tokenizer first = fixture::tokenizer("llama3");
  const Tokenizer second = fixture::tokenizer("spm_llama2");
  const auto work = [&](std::vector<uint32_t>& hashes) {
    for (size_t i = 0; i < 400; ++i) {
      const std::string& line = fixture::corpus()[i * 13];
      hashes.push_back(fixture::hash(first.encode(line)));
      hashes.push_back(fixture::hash(second.encode(line)));
      hashes.push_back(fixture::hash(first.decode(first.encode(line))));
    }
  };
  std::vector<uint32_t> expected;
  work(expected);
  std::vector<std::vector<uint32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { work(result); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) CHECK(result == expected);
}
