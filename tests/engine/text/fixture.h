#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_gguf.h"
#include "io/json.h"

/// The data of tests/data/tokenizers (made by scripts/fixtures/tokenizer_golden.py).
namespace tokenmill::text::fixture {

/// Unpacked contents of tests/data/tokenizers/<name>.gz.
std::string unpacked(const std::string& name);
/// The lines of mixed text.
const std::vector<std::string>& corpus();
io::JsonValue tokenizer_json(const std::string& name);
Tokenizer tokenizer(const std::string& name);

struct GoldenLine {
  uint32_t ids;   ///< hash of the line's ids
  uint32_t text;  ///< hash of what decoding them gives, special tokens skipped
};
std::vector<GoldenLine> golden(const std::string& name);

uint32_t hash(std::string_view bytes);
uint32_t hash(const std::vector<int32_t>& ids);

/// The same vocabulary as a GGUF file would hold it.
GgufVocabulary as_gguf(const io::JsonValue& tokenizer_json, const std::string& model, const std::string& pre);

/// Checks ids and decoded text of every line; reports the first differences and how many there are.
void check_golden(const Tokenizer& tokenizer, const std::string& golden_name);

}  // namespace tokenmill::text::fixture
