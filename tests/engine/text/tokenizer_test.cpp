#include "engine/text/tokenizer.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/text/tokenizer_loader.h"
#include "io/file.h"
#include "kernels/core/error.h"

using namespace tokenmill;
using namespace tokenmill::text;
using Ids = std::vector<int32_t>;

namespace {

std::string tiny_json() { return io::read_file(TM_TEST_DATA "/cases/tiny_bpe.json", 1 << 20); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

Tokenizer load(const std::string& json) { return load_tokenizer_json(io::parse_json(json, "tiny"), {}, "tiny"); }

/// tiny_bpe.json without its added tokens.
std::string without_added_tokens() {
  std::string json = tiny_json();
  const size_t begin = json.find("\"added_tokens\":[");
  const size_t end = json.find("],", begin);
  return json.replace(begin, end - begin + 1, "\"added_tokens\":[]");
}

const EncodeOptions kBare{.add_special_tokens = false};

std::string decode_one_by_one(const Tokenizer& tokenizer, const Ids& ids) {
  std::string out;
  Detokenizer detokenizer(tokenizer);
  for (const int32_t id : ids) detokenizer.push(id, out);
  detokenizer.finish(out);
  return out;
}

}  // namespace

TEST_CASE("a split piece that is in the vocabulary is one token, whatever the merges say") {
  std::string json =
      replaced(without_added_tokens(), R"("ids":[268])", R"("ids":[256])");  // its template needs known ids
  const Tokenizer tokenizer = load(json);
  const std::vector<std::pair<std::string, Ids>> cases = {
      {" milo", {267}},
      {"milo", {256, 258}},
      {"x milo\n", {120, 267, 10}},
      {"12345 1234", {263, 52, 53, 32, 263, 52}},
      {"a   b", {97, 265, 32, 98}},
      {"a   ", {97, 265, 32}},
      {"a \n\n b", {97, 32, 10, 10, 32, 98}},
      {"x\u2029 y", {120, 226, 128, 169, 32, 121}},
      {"\u4f60\u597d\uff0c123", {228, 189, 160, 229, 165, 189, 239, 188, 140, 263}},
      {"", {}},
  };
  for (const auto& [text, ids] : cases) {
    CAPTURE(text);
    CHECK(tokenizer.encode(text, kBare) == ids);
    CHECK(tokenizer.decode(ids) == text);
  }
  const Tokenizer merging = load(replaced(json, R"("ignore_merges":true)", R"("ignore_merges":false)"));
  CHECK(merging.encode(" milo", kBare) == Ids{257, 258});
}

TEST_CASE("marker text becomes the marker, unless special tokens are not parsed") {
  const Tokenizer tokenizer = load(tiny_json());
  CHECK(tokenizer.encode("x") == Ids{268, 120});
  CHECK(tokenizer.encode("<s>x", kBare) == Ids{268, 120});
  CHECK(tokenizer.encode("a<|end|>b", kBare) == Ids{97, 271, 98});
  CHECK(tokenizer.encode("a<|end|>b", {.add_special_tokens = false, .parse_special = false}) ==
        Ids{97, 60, 124, 101, 110, 100, 124, 62, 98});
  CHECK(tokenizer.decode(Ids{268, 120, 271}, {.skip_special_tokens = true}) == "x");
  CHECK(tokenizer.decode(Ids{268, 120, 271}) == "<s>x<|end|>");
}

TEST_CASE("cut-off characters end as U+FFFD, and only at the end") {
  const Tokenizer tokenizer = load(tiny_json());
  const std::string bad = "\uFFFD";
  const std::vector<std::pair<Ids, std::string>> cases = {
      {{72, 105, 240, 159}, "Hi" + bad},
      {{240, 159, 65}, bad + "A"},
      {{240, 159, 153, 130}, "\U0001F642"},
      {{240, 159, 153}, bad},
      {{240, 159, 153, 240, 159, 153, 130}, bad + "\U0001F642"},
      {{237, 160, 128}, bad + bad + bad},
      {{192, 128}, bad + bad},
      {{255}, bad},
      {{72, 100000, -1, 105}, "Hi"},
      {{}, ""},
  };
  for (const auto& [ids, text] : cases) {
    CAPTURE(text);
    CHECK(tokenizer.decode(ids) == text);
    CHECK(decode_one_by_one(tokenizer, ids) == text);
  }
  Detokenizer detokenizer(tokenizer);
  std::string out;
  for (const int32_t id : {240, 159, 153}) detokenizer.push(id, out);
  CHECK(out.empty());
  detokenizer.push(130, out);
  CHECK(out == "\U0001F642");
}

TEST_CASE("invalid UTF-8 is encoded like U+FFFD per maximal invalid part") {
  const Tokenizer tokenizer = load(tiny_json());
  const std::string bad = "\uFFFD";
  CHECK(tokenizer.encode("a\xF0\x9F"
                         "b\xC0\x80",
                         kBare) == tokenizer.encode("a" + bad + "b" + bad + bad, kBare));
  CHECK(tokenizer.encode("\xED\xA0\x80", kBare) == tokenizer.encode(bad + bad + bad, kBare));
}

TEST_CASE("tokens can be looked up by spelling, id and bytes") {
  const Tokenizer tokenizer = load(tiny_json());
  CHECK(tokenizer.vocab_size() == 272);
  CHECK(tokenizer.token_to_id("\u0120mi") == 257);
  CHECK(tokenizer.token_to_id("<|end|>") == 271);
  CHECK(tokenizer.token_to_id("nothing") == std::nullopt);
  CHECK(tokenizer.id_to_token(257) == "\u0120mi");
  CHECK(tokenizer.id_to_token(272) == std::nullopt);
  CHECK(tokenizer.id_to_token(-1) == std::nullopt);
  CHECK(tokenizer.token_bytes(257) == " mi");
  CHECK(tokenizer.token_bytes(240) == "\xF0");
  CHECK(tokenizer.token_bytes(5000).empty());
  CHECK(tokenizer.is_special(271));
  CHECK_FALSE(tokenizer.is_special(97));
  CHECK_FALSE(tokenizer.is_special(-5));
}
