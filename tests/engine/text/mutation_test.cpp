// Seeded mutations of tokenizers. A fixed number of rounds by default; TOKENMILL_FUZZ_SECONDS=n goes on for n seconds,
// TOKENMILL_FUZZ_SEED chooses other mutations.
#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <string>

#include "engine/text/tokenizer_gguf.h"
#include "engine/text/tokenizer_loader.h"
#include "io/file.h"
#include "kernels/core/error.h"
#include "tests/engine/text/fixture.h"
#include "tests/support/mutations.h"

extern "C" int fuzz_tokenizer(const uint8_t* data, size_t size);  // fuzz/tokenizer_fuzz.cpp

using namespace tokenmill;
using namespace tokenmill::text;

namespace {

std::mt19937 seeded() {
  return std::mt19937(static_cast<uint32_t>(test::environment_number("TOKENMILL_FUZZ_SEED", 20)));
}

/// True for the given number of rounds, or for TOKENMILL_FUZZ_SECONDS.
bool goes_on(int round, int rounds) {
  static const uint64_t seconds = test::environment_number("TOKENMILL_FUZZ_SECONDS", 0);
  static const auto start = std::chrono::steady_clock::now();
  return round < rounds || std::chrono::steady_clock::now() - start < std::chrono::seconds(seconds);
}

/// A small tokenizer.json that holds every kind of component.
std::string seed_json() {
  std::string json = io::read_file(TM_TEST_DATA "/cases/tiny_bpe.json", 1 << 20);
  const std::string normalizers =
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Prepend","prepend":"_"},
    {"type":"Strip","strip_left":true,"strip_right":false},{"type":"Lowercase"},{"type":"StripAccents"},
    {"type":"Replace","pattern":{"Regex":"[aeiou]{2,3}"},"content":"e"}]})";
  const std::string null = "\"normalizer\":null";
  json.replace(json.find(null), null.size(), normalizers);
  const std::string decoder =
      R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"_"},"content":" "},
    {"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":1},{"type":"Metaspace","replacement":"x"}]},"was")";
  const std::string name = "\"decoder\"";
  return json.replace(json.find(name), name.size(), decoder);
}

/// Changes that keep much of the structure: numbers, words of the format, single bytes, cuts, repeats.
std::string mutate(std::string text, std::mt19937& random) {
  static const std::vector<std::string> kWords = {"null",
                                                  "true",
                                                  "false",
                                                  "-1",
                                                  "0",
                                                  "272",
                                                  "4194303",
                                                  "99999999999",
                                                  "1e9",
                                                  "\"\"",
                                                  "[]",
                                                  "{}",
                                                  "\"A\"",
                                                  "\"Sequence\"",
                                                  "\"ByteLevel\"",
                                                  "\"Split\"",
                                                  "\"Metaspace\"",
                                                  "\"Removed\"",
                                                  "\"MergedWithNext\"",
                                                  "\\\\s+",
                                                  "\\\\p{L}",
                                                  "(?i:",
                                                  ")",
                                                  "[",
                                                  "\\u0000",
                                                  "\\u2581",
                                                  "\xF0\x9F",
                                                  "\"id\":",
                                                  "\"normalized\":true",
                                                  "\"lstrip\":true",
                                                  "\"rstrip\":true",
                                                  "\"single_word\":true",
                                                  "\"unk_token\":\"a\""};
  const int changes = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < changes && !text.empty(); ++i) {
    const size_t at = random() % text.size();
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 12);
        break;
      case 2:
        text.insert(at, kWords[random() % kWords.size()]);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
        break;
      case 4: {  // another word in the place of a value
        const size_t colon = text.find(':', at);
        const size_t stop = colon == std::string::npos ? colon : text.find_first_of(",}]", colon);
        if (stop != std::string::npos) text.replace(colon + 1, stop - colon - 1, kWords[random() % kWords.size()]);
        break;
      }
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

}  // namespace

TEST_CASE("a damaged tokenizer.json is refused or works, and never crashes") {
  const std::string seed = seed_json();
  int loaded = 0;
  int rounds = 0;
  std::mt19937 random = seeded();
  for (; goes_on(rounds, 1500); ++rounds) {
    std::string input = rounds == 0 ? seed : mutate(seed, random);
    try {
      load_tokenizer_json(io::parse_json(input, "mutated"), {}, "mutated");
      ++loaded;
    } catch (const Error&) {
    }
    input += '\0';
    input += fixture::corpus()[random() % fixture::corpus().size()];
    if (random() % 3 == 0) input[input.size() - 1] = static_cast<char>(random());
    fuzz_tokenizer(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  // Both ends must be reached, else the loop tests nothing.
  CHECK(loaded > rounds / 50);
  CHECK(loaded < rounds);
}

TEST_CASE("a damaged GGUF vocabulary is refused or works, and never crashes") {
  std::mt19937 random = seeded();
  const io::JsonValue spm = fixture::tokenizer_json("unknowns");
  const io::JsonValue bpe = io::parse_json(io::read_file(TM_TEST_DATA "/cases/tiny_bpe.json", 1 << 20), "tiny");
  const auto number = [&](int64_t size) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(size + 4)) - 2;
  };
  int loaded = 0;
  for (int round = 0; round < 200; ++round) {
    GgufVocabulary v = round % 2 ? fixture::as_gguf(spm, "llama", "") : fixture::as_gguf(bpe, "gpt2", "llama-bpe");
    const auto size = static_cast<int64_t>(v.tokens.size());
    if (round % 2 == 0) v.bos_id = 268;
    for (int change = 0; change < 3; ++change) {
      const size_t at = random() % v.tokens.size();
      switch (random() % 9) {
        case 0:
          v.tokens[at] = mutate(v.tokens[at] + "\u2581x", random);
          break;
        case 1:
          v.tokens[at] = v.tokens[random() % v.tokens.size()];
          break;
        case 2:
          v.token_types[at] = static_cast<int32_t>(number(6));
          break;
        case 3:
          v.scores[at] = static_cast<float>(number(10));
          break;
        case 4:
          v.bos_id = number(size);
          break;
        case 5:
          v.unk_id = number(size);
          break;
        case 6:
          if (!v.merges.empty()) v.merges[random() % v.merges.size()] = mutate("a b", random);
          break;
        case 7:
          v.add_eos = random() % 2 == 0;
          break;
        default:
          v.add_space_prefix = random() % 2 == 0;
          break;
      }
    }
    try {
      const Tokenizer tokenizer = load_tokenizer_gguf(std::move(v), "mutated.gguf");
      ++loaded;
      for (int i = 0; i < 5; ++i) {
        const auto ids = tokenizer.encode(fixture::corpus()[random() % fixture::corpus().size()]);
        tokenizer.decode(ids, {.skip_special_tokens = i % 2 == 0});
      }
    } catch (const Error&) {
    }
  }
  CHECK(loaded > 20);
  CHECK(loaded < 200);
}
