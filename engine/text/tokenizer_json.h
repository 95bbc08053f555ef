#pragma once
#include <string_view>

#include "engine/text/tokenizer_parts.h"
#include "io/json.h"

namespace tokenmill::text {

/// Builds the parts from the contents of a tokenizer.json (model BPE). Every field that changes ids or text is either
/// honoured or refused: an unknown component throws Error(kInput) that starts with `where`, names it and what is
/// supported. `truncation` and `padding` are not applied: a row's length is the caller's decision. The special ids
/// (bos_id, ...) are not in this file and stay empty.
TokenizerParts parse_tokenizer_json(const io::JsonValue& json, std::string_view where);

// The components, one function per section of the file; null gives an empty component.
Normalizer parse_normalizer(const io::JsonValue& json, std::string_view where);
struct PreTokenizerParts {
  PreTokenizer steps;
  bool byte_level = false;  ///< ends in ByteLevel: the model works on bytes
};
PreTokenizerParts parse_pre_tokenizer(const io::JsonValue& json, std::string_view where);
Decoder parse_decoder(const io::JsonValue& json, std::string_view where);
struct Template {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};
Template parse_post_processor(const io::JsonValue& json, std::string_view where);
BpeModel parse_bpe(const io::JsonValue& json, bool byte_level, std::string_view where);
std::vector<AddedToken> parse_added_tokens(const io::JsonValue& json, std::string_view where);
/// One added token's fields; id is not among them.
AddedToken parse_added_token_fields(const io::JsonValue& json, std::string_view where);

}  // namespace tokenmill::text
