#pragma once
#include <string>
#include <string_view>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_config.h"
#include "io/json.h"

namespace tokenmill::text {

/// A tokenizer from the contents of tokenizer.json and, where there is one, of tokenizer_config.json: the latter names
/// the special tokens (bos_id(), ...), which become special even if tokenizer.json does not list them, and may list
/// added tokens that the former lacks. Throws Error(kInput) that starts with `where`.
Tokenizer load_tokenizer_json(const io::JsonValue& tokenizer_json, const TokenizerConfig& config,
                              std::string_view where);

struct LoadedTokenizer {
  Tokenizer tokenizer;
  TokenizerConfig config;  ///< chat_template.jinja, where present, stands in chat_templates as "default"
};

/// Reads tokenizer.json, tokenizer_config.json and chat_template.jinja (the last two may be missing) of a directory.
/// Throws Error(kIo) when files cannot be read, Error(kInput) when they cannot be used.
LoadedTokenizer load_tokenizer_directory(const std::string& directory);

}  // namespace tokenmill::text
