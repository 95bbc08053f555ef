#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <tuple>

#include "engine/text/tokenizer_loader.h"
#include "io/file.h"
#include "kernels/core/error.h"
#include "tests/engine/text/fixture.h"

using namespace tokenmill;
using namespace tokenmill::text;

namespace {

/// A tokenizer.json of a few tokens; `section` replaces the section of the same name.
io::JsonValue small_json(const std::string& section = "", const std::string& value = "") {
  io::JsonValue json =
      io::parse_json(R"({"added_tokens": [{"id": 4, "content": "<s>", "special": true}], "normalizer": null,
    "pre_tokenizer": null, "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "u": 3}, "merges": [["a", "b"]]}})",
                     "small");
  for (auto& [name, member] : json.members()) {
    if (name == section) member = io::parse_json(value, "section");
  }
  return json;
}

struct Directory {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tokenmill_loader_test_" + std::to_string(::getpid()));
  Directory() { std::filesystem::create_directories(path); }
  ~Directory() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& text) { io::write_file_atomically(path / name, text); }
};

GgufVocabulary small_gguf() {
  GgufVocabulary v;
  v.model = "llama";
  v.tokens = {"<unk>", "<s>", "a", "b", "ab", "\u2581"};
  v.scores = {0, 0, -2, -3, -1, -4};
  v.token_types = {2, 3, 1, 1, 1, 1};
  v.bos_id = 1;
  v.unk_id = 0;
  return v;
}

}  // namespace

TEST_CASE("an unknown component is refused by name, with what is supported") {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"normalizer", R"({"type": "BertNormalizer"})",
       "normalizer: type \"BertNormalizer\" is not supported; supported: Sequence, NFC"},
      {"normalizer", R"({"type": "Precompiled"})", "\"Precompiled\" is not supported"},
      {"normalizer", R"({"type": "Replace", "pattern": {"String": ""}, "content": "x"})", "at least one character"},
      {"pre_tokenizer", R"({"type": "BertPreTokenizer"})", "supported: Sequence, ByteLevel, Split"},
      {"pre_tokenizer", R"x({"type": "Split", "pattern": {"Regex": "(?<x>a)"}, "behavior": "Isolated"})x",
       "an unusual group"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways"})",
       "\"Sideways\"; allowed: Removed"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"Glob": "a"}, "behavior": "Isolated"})",
       "{\"String\": ...} or {\"Regex\": ...}"},
      {"pre_tokenizer",
       R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "WhitespaceSplit"}]})",
       "must be the last pre-tokenizer"},
      {"pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})", "allowed: one character"},
      {"pre_tokenizer", R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})",
       "always, first, never"},
      {"post_processor", R"({"type": "BertProcessing"})", "supported: Sequence, ByteLevel, TemplateProcessing"},
      {"post_processor", R"({"type": "TemplateProcessing", "single": []})", "a template without A"},
      {"post_processor",
       R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "B"}}]})",
       "B again"},
      {"post_processor",
       R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"<s>": {"ids": [77]}}})",
       "id 77; allowed: ids of tokens"},
      {"decoder", R"({"type": "WordPiece"})", "supported: Sequence, ByteLevel, ByteFallback"},
      {"decoder", R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})",
       "it must come before them"},
      {"model", R"({"type": "Unigram", "vocab": []})", "type \"Unigram\" is not supported; supported: BPE"},
      {"model", R"({"vocab": {}})", "supported: BPE"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1})",
       "dropout is 0.1; allowed: null or 0"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "end_of_word_suffix": "</w>"})",
       "end_of_word_suffix is \"</w>\""},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})",
       "merges[0] needs the token \"b\", which vocab lacks"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b c"]})", "merges[0] is \"a b c\""},
      {"model", R"({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})", "id 0 stands for both"},
      {"model", R"({"type": "BPE", "vocab": {"a": 99999999}, "merges": []})", "from 0 to 4194303, found 99999999"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "?"})",
       "unk_token is \"?\"; allowed: a token of vocab"},
      {"model", R"({"type": "BPE", "vocab": {"a": 0}, "merges": [], "ignore_merges": 1})",
       "must be true or false, found number"},
      {"added_tokens", R"([{"content": "x"}])", "field \"id\" is missing"},
      {"added_tokens", R"([{"id": 1, "content": "x"}])", "has id 1, which is the vocabulary's \"b\""},
  };
  for (const auto& [section, value, what] : cases) {
    CAPTURE(section);
    CAPTURE(value);
    CHECK_THROWS_WITH_AS(load_tokenizer_json(small_json(section, value), {}, "m/tokenizer.json"),
                         doctest::Contains(what.c_str()), Error);
    CHECK_THROWS_WITH_AS(load_tokenizer_json(small_json(section, value), {}, "m/tokenizer.json"),
                         doctest::Contains("m/tokenizer.json: "), Error);
  }
  CHECK(load_tokenizer_json(small_json(), {}, "small").encode("ab") == std::vector<int32_t>{2});
}

TEST_CASE("tokenizer_config.json names special tokens and adds what tokenizer.json lacks") {
  const TokenizerConfig config =
      parse_tokenizer_config(io::parse_json(R"({"bos_token": "<s>", "eos_token": {"content": "u", "lstrip": false},
    "pad_token": null, "unk_token": "gone", "add_bos_token": true, "chat_template": [{"name": "default", "template": "x"},
    {"name": "rag", "template": "y"}], "added_tokens_decoder": {"9": {"content": "<new>", "special": true},
    "4": {"content": "<s>", "special": true}}})",
                                            "config"),
                             "config");
  CHECK(config.bos_token == "<s>");
  CHECK(config.pad_token == std::nullopt);
  CHECK(config.add_bos_token == true);
  CHECK(config.add_eos_token == std::nullopt);
  REQUIRE(config.chat_templates.size() == 2);
  CHECK(config.chat_templates[1].name == "rag");
  CHECK(config.added_tokens.front().id == 4);

  const Tokenizer tokenizer = load_tokenizer_json(small_json(), config, "small");
  CHECK(tokenizer.bos_id() == 4);
  CHECK(tokenizer.eos_id() == 3);
  CHECK(tokenizer.pad_id() == std::nullopt);
  CHECK(tokenizer.unk_id() == std::nullopt);
  CHECK(tokenizer.is_special(3));
  CHECK(tokenizer.vocab_size() == 10);
  CHECK(tokenizer.encode("a<new>u") == std::vector<int32_t>{0, 9, 3});
  CHECK(tokenizer.encode("ab").size() == 1);  // add_bos_token is recorded; tokenizer.json's template decides

  CHECK_THROWS_WITH_AS(parse_tokenizer_config(io::parse_json(R"({"bos_token": 1})", "c"), "c"),
                       doctest::Contains("bos_token is number"), Error);
  CHECK_THROWS_WITH_AS(parse_tokenizer_config(io::parse_json(R"({"added_tokens_decoder": {"x": {}}})", "c"), "c"),
                       doctest::Contains("\"x\"; allowed: an id"), Error);
  CHECK_THROWS_WITH_AS(parse_tokenizer_config(io::parse_json(R"({"chat_template": 1})", "c"), "c"),
                       doctest::Contains("chat_template is number"), Error);
}

TEST_CASE("a directory needs tokenizer.json; chat_template.jinja goes before the configuration's template") {
  Directory directory;
  CHECK_THROWS_WITH_AS(load_tokenizer_directory(directory.path), doctest::Contains("there is no tokenizer.json"),
                       Error);
  directory.write("tokenizer.json", io::to_json(small_json()));
  CHECK(load_tokenizer_directory(directory.path).config.chat_templates.empty());
  directory.write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "old"})");
  CHECK(load_tokenizer_directory(directory.path).config.chat_templates.at(0).text == "old");
  directory.write("chat_template.jinja", "new");
  const LoadedTokenizer loaded = load_tokenizer_directory(directory.path);
  REQUIRE(loaded.config.chat_templates.size() == 1);
  CHECK(loaded.config.chat_templates[0].text == "new");
  CHECK(loaded.tokenizer.bos_id() == 4);
}

TEST_CASE("a GGUF vocabulary merges by score, adds BOS and a space, and knows its byte tokens") {
  const Tokenizer tokenizer = load_tokenizer_gguf(small_gguf(), "m.gguf");
  CHECK(tokenizer.encode("ab") == std::vector<int32_t>{1, 5, 4});
  CHECK(tokenizer.encode("a?b", {.add_special_tokens = false}) == std::vector<int32_t>{5, 2, 0, 3});
  GgufVocabulary v = small_gguf();
  v.add_bos = false;
  v.add_space_prefix = false;
  CHECK(load_tokenizer_gguf(v, "m.gguf").encode("ab b") == std::vector<int32_t>{4, 5, 3});
  v.tokens.push_back("a\u2581");  // user-defined pieces may be written with the mark
  v.scores.push_back(0);
  v.token_types.push_back(GgufVocabulary::kUserDefined);
  CHECK(load_tokenizer_gguf(v, "m.gguf").encode("a b") == std::vector<int32_t>{6, 3});
}

TEST_CASE("a GGUF vocabulary that cannot be used says why") {
  const auto check = [](auto&& change, const char* what) {
    GgufVocabulary v = small_gguf();
    change(v);
    CHECK_THROWS_WITH_AS(load_tokenizer_gguf(v, "m.gguf"), doctest::Contains(what), Error);
  };
  check([](auto& v) { v.model = "bert"; }, "tokenizer.ggml.model is \"bert\"; supported: gpt2");
  check(
      [](auto& v) {
        v.model = "gpt2";
        v.pre = "tekken";
      },
      "tokenizer.ggml.pre is \"tekken\"; supported: gpt-2, smollm");
  check([](auto& v) { v.scores.pop_back(); }, "tokenizer.ggml.scores has 5 entries, tokenizer.ggml.tokens 6");
  check([](auto& v) { v.token_types.pop_back(); }, "token_type has 5 entries");
  check([](auto& v) { v.tokens.clear(); }, "tokens is empty");
  check([](auto& v) { v.bos_id = 6; }, "bos_token_id is 6; ids run from 0 to 5");
  check([](auto& v) { v.bos_id.reset(); }, "bos_token_id is missing");
  check([](auto& v) { v.add_eos = true; }, "eos_token_id is missing");
  check([](auto& v) { v.scores[2] = std::nanf(""); }, "scores[2] is NaN");
  check(
      [](auto& v) {
        v.model = "gpt2";
        v.pre = "gpt-2";
        v.merges = {"a c"};
      },
      "merges[0] is \"a c\"");
  check([](auto& v) { v.tokens[2] = std::string(5000, 'x'); }, "has 5000 bytes; at most 4096");
}
