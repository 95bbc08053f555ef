#include <doctest/doctest.h>

#include "engine/text/tokenizer_loader.h"
#include "io/file.h"
#include "tests/engine/text/fixture.h"

using namespace tokenmill;
using namespace tokenmill::text;

TEST_CASE("ids and text equal the tokenizers package on every line, for every kind of tokenizer") {
  for (const std::string name : {"gpt2", "llama3", "qwen2", "spm_llama2", "spm_gemma", "spm_metaspace", "unknowns"}) {
    fixture::check_golden(fixture::tokenizer(name), name);
  }
}

TEST_CASE("the same vocabularies give the same ids when they come from GGUF") {
  const auto check = [](const std::string& name, const std::string& model, const std::string& pre, auto&& adapt) {
    GgufVocabulary vocabulary = fixture::as_gguf(fixture::tokenizer_json(name), model, pre);
    adapt(vocabulary);
    fixture::check_golden(load_tokenizer_gguf(std::move(vocabulary), name), name);
  };
  check("gpt2", "gpt2", "gpt-2", [](GgufVocabulary&) {});
  check("llama3", "gpt2", "llama-bpe", [](GgufVocabulary& v) { v.bos_id = 0; });
  check("qwen2", "gpt2", "qwen2", [](GgufVocabulary&) {});
  check("spm_llama2", "llama", "default", [](GgufVocabulary&) {});
  check("spm_gemma", "llama", "default", [](GgufVocabulary& v) { v.add_space_prefix = false; });
}

TEST_CASE("decoding gives the text back where the kind promises it") {
  for (const std::string name : {"gpt2", "llama3", "spm_llama2", "spm_gemma"}) {
    const Tokenizer tokenizer = fixture::tokenizer(name);
    int checked = 0;
    for (const std::string& line : fixture::corpus()) {
      // SentencePiece writes spaces as U+2581, so a U+2581 of the text comes back as a space.
      if (name.starts_with("spm") && line.find("\u2581") != std::string::npos) continue;
      // With a space put in front of each stretch of text, the one behind a token in its middle stays.
      const auto ids = tokenizer.encode(line, {.add_special_tokens = false, .parse_special = name != "spm_llama2"});
      CAPTURE(name);
      CHECK(tokenizer.decode(ids) == line);
      ++checked;
    }
    CHECK(checked > 4500);
  }
}

TEST_CASE("each component does what the tokenizers package's does") {
  const io::JsonValue document = io::parse_json(fixture::unpacked("components.json"), "components.json");
  const auto stride = static_cast<size_t>(document.at("stride").as_int64());
  for (const io::JsonValue& variant : document.at("variants").items()) {
    const io::JsonValue* base = variant.find("base");
    std::string described;
    io::JsonValue json = fixture::tokenizer_json(base != nullptr ? base->as_string() : "gpt2");
    for (auto& [section, value] : json.members()) {
      if (const io::JsonValue* replacement = variant.find(section); replacement != nullptr && section != "model")
        value = *replacement;
      if (section == "added_tokens" && variant.find("added") != nullptr) {
        for (const io::JsonValue& token : variant.at("added").items()) value.items().push_back(token);
      }
      if (section != "model" || variant.find("model") == nullptr) continue;
      for (auto& [field, setting] : value.members()) {
        if (const io::JsonValue* replacement = variant.at("model").find(field)) setting = *replacement;
      }
    }
    for (const auto& [name, value] : variant.members()) {
      if (name != "hashes") described += name + ": " + io::to_json(value) + " ";
    }
    CAPTURE(described);
    EncodeOptions options;
    if (const io::JsonValue* parse = variant.find("parse_special")) options.parse_special = parse->as_bool();
    const Tokenizer tokenizer = load_tokenizer_json(json, {}, "variant");
    const auto& hashes = variant.at("hashes").items();
    int different = 0;
    for (size_t i = 0; i < hashes.size(); ++i) {
      const std::string& line = fixture::corpus()[i * stride];
      const auto ids = tokenizer.encode(line, options);
      if (fixture::hash(ids) == static_cast<uint32_t>(hashes[i].as_int64())) continue;
      if (++different > 2) continue;
      std::string tokens;
      for (const int32_t id : ids) tokens.append("|").append(tokenizer.id_to_token(id).value_or("?"));
      MESSAGE(described, " line ", i * stride, ": ", line, " -> ", tokens);
    }
    CHECK_MESSAGE(different == 0, different, " of ", hashes.size(), " lines differ");
  }
}

TEST_CASE("each decoder gives the text of the tokenizers package") {
  const io::JsonValue document = io::parse_json(fixture::unpacked("components.json"), "components.json");
  for (const io::JsonValue& decoding : document.at("decodings").items()) {
    io::JsonValue json = fixture::tokenizer_json(decoding.at("base").as_string());
    if (const io::JsonValue* decoder = decoding.find("decoder")) {
      for (auto& [section, value] : json.members()) {
        if (section == "decoder") value = *decoder;
      }
    }
    const Tokenizer tokenizer = load_tokenizer_json(json, {}, "decoding");
    for (const io::JsonValue& test : decoding.at("cases").items()) {
      std::vector<int32_t> ids;
      for (const io::JsonValue& id : test.at("ids").items()) ids.push_back(static_cast<int32_t>(id.as_int64()));
      CAPTURE(io::to_json(test));
      CAPTURE(decoding.at("base").as_string());
      CHECK(tokenizer.decode(ids, {.skip_special_tokens = test.at("skip_special_tokens").as_bool()}) ==
            test.at("text").as_string());
    }
  }
}

TEST_CASE("added tokens that follow one another have what the decoder puts between tokens only when asked for") {
  const io::JsonValue document =
      io::parse_json(io::read_file(TM_TEST_DATA "/tokenizers/special_spacing.json", 1 << 20), "special_spacing.json");
  int64_t num_different = 0;
  for (const io::JsonValue& chain : document.at("chains").items()) {
    io::JsonValue json = fixture::tokenizer_json(chain.at("base").as_string());
    for (auto& [section, value] : json.members()) {
      if (section == "decoder" && chain.at("joined").as_bool()) value = io::JsonValue();
      if (section != "added_tokens") continue;
      for (const io::JsonValue& token : chain.at("added").items()) value.items().push_back(token);
    }
    const Tokenizer tokenizer = load_tokenizer_json(json, {}, "chain");
    for (const io::JsonValue& test : chain.at("cases").items()) {
      std::vector<int32_t> ids;
      for (const io::JsonValue& id : test.at("ids").items()) ids.push_back(static_cast<int32_t>(id.as_int64()));
      CAPTURE(io::to_json(test));
      CAPTURE(chain.at("base").as_string());
      const std::string& unspaced = test.at("unspaced").as_string();
      CHECK(tokenizer.decode(ids) == test.at("spaced").as_string());
      CHECK(tokenizer.decode(ids, {.spaces_between_special_tokens = false}) == unspaced);
      // vLLM heeds the spaces only where special tokens are shown.
      for (const bool spaces : {true, false})
        CHECK(tokenizer.decode(ids, {true, spaces}) == test.at("skipped").as_string());
      num_different += unspaced != test.at("spaced").as_string();
    }
  }
  CHECK(num_different > 30);
}
