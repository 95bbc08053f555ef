#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/added_tokens.h"
#include "io/json.h"

namespace tokenmill::text {

struct ChatTemplateSource {
  std::string name;  ///< "default" when the file does not name it
  std::string text;
};

/// What tokenizer_config.json says, as far as tokenmill uses it.
struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  std::optional<std::string> unk_token;
  /// Recorded, not applied: the template in tokenizer.json decides what is added (transformers 5 does the same).
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
  std::vector<AddedToken> added_tokens;  ///< added_tokens_decoder, by ascending id
  std::vector<ChatTemplateSource> chat_templates;
};

/// Throws Error(kInput) starting with `where` for fields of the wrong type.
TokenizerConfig parse_tokenizer_config(const io::JsonValue& json, std::string_view where);

}  // namespace tokenmill::text
