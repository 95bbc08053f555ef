#include "tests/engine/text/fixture.h"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <sstream>

#include "engine/text/tokenizer_loader.h"
#include "io/byte_stream.h"

namespace tokenmill::text::fixture {

std::string unpacked(const std::string& name) {
  const auto stream = io::open_byte_stream(std::string(TM_TEST_DATA "/tokenizers/") + name + ".gz");
  std::string out;
  std::array<std::byte, 1 << 16> buffer;
  while (const int64_t size = stream->read(buffer)) {
    out.append(reinterpret_cast<const char*>(buffer.data()), static_cast<size_t>(size));
  }
  return out;
}

const std::vector<std::string>& corpus() {
  static const std::vector<std::string> lines = [] {
    std::vector<std::string> out;
    std::istringstream in(unpacked("corpus.jsonl"));
    for (std::string line; std::getline(in, line);) out.push_back(io::parse_json(line, "corpus.jsonl").as_string());
    return out;
  }();
  return lines;
}

io::JsonValue tokenizer_json(const std::string& name) { return io::parse_json(unpacked(name + ".json"), name); }

Tokenizer tokenizer(const std::string& name) { return load_tokenizer_json(tokenizer_json(name), {}, name); }

std::vector<GoldenLine> golden(const std::string& name) {
  std::vector<GoldenLine> out;
  std::istringstream in(unpacked(name + ".golden"));
  in >> std::hex;
  for (GoldenLine line; in >> line.ids >> line.text;) out.push_back(line);
  return out;
}

uint32_t hash(std::string_view bytes) {
  uint32_t value = 0x811C9DC5u;
  for (const char c : bytes) value = (value ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return value;
}

uint32_t hash(const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(static_cast<uint32_t>(id) >> shift);
  }
  return hash(bytes);
}

GgufVocabulary as_gguf(const io::JsonValue& json, const std::string& model, const std::string& pre) {
  GgufVocabulary out;
  out.model = model;
  out.pre = pre;
  const auto& vocab = json.at("model").at("vocab").members();
  const auto& added = json.at("added_tokens").items();
  size_t size = vocab.size();
  for (const auto& token : added) size = std::max(size, static_cast<size_t>(token.at("id").as_int64()) + 1);
  out.tokens.resize(size);
  out.token_types.resize(size, GgufVocabulary::kNormal);
  for (const auto& [token, id] : vocab) {
    out.tokens[static_cast<size_t>(id.as_int64())] = token;
    if (token.size() == 6 && token.starts_with("<0x"))
      out.token_types[static_cast<size_t>(id.as_int64())] = GgufVocabulary::kByte;
  }
  for (const auto& token : added) {
    const auto id = static_cast<size_t>(token.at("id").as_int64());
    out.tokens[id] = token.at("content").as_string();
    out.token_types[id] = token.at("special").as_bool() ? GgufVocabulary::kControl : GgufVocabulary::kUserDefined;
  }
  for (size_t id = 0; id < size; ++id) out.scores.push_back(-static_cast<float>(id));
  if (model == "gpt2") {
    for (const auto& pair : json.at("model").at("merges").items()) {
      out.merges.push_back(pair.items()[0].as_string() + " " + pair.items()[1].as_string());
    }
  } else {
    out.unk_id = 0;
    out.bos_id = 1;
  }
  return out;
}

void check_golden(const Tokenizer& tokenizer, const std::string& golden_name) {
  const auto expected = golden(golden_name);
  REQUIRE(expected.size() == corpus().size());
  REQUIRE(expected.size() >= 5000);
  int different = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::vector<int32_t> ids = tokenizer.encode(corpus()[i]);
    const bool same_ids = hash(ids) == expected[i].ids;
    const bool same_text = hash(tokenizer.decode(ids, {.skip_special_tokens = true})) == expected[i].text;
    if (same_ids && same_text) continue;
    if (++different > 5) continue;
    std::string tokens;
    for (const int32_t id : ids) tokens.append("|").append(tokenizer.id_to_token(id).value_or("?"));
    MESSAGE(golden_name, " line ", i, " ", corpus()[i], same_ids ? "" : " ids differ: ", tokens,
            same_text ? "" : " text differs");
  }
  CHECK_MESSAGE(different == 0, golden_name, ": ", different, " of ", expected.size(), " lines differ");
}

}  // namespace tokenmill::text::fixture
