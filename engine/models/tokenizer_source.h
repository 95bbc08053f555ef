#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/text/tokenizer_loader.h"

namespace tokenmill {

/// The text side of a model path: tokenizer, chat templates and the special tokens templates may name.
struct TokenizerSource {
  text::Tokenizer tokenizer;
  std::vector<text::ChatTemplateSource> chat_templates;  ///< "default" first when there is one
  /// (name, spelling): bos_token, eos_token, pad_token, unk_token, as far as the checkpoint names them.
  std::vector<std::pair<std::string, std::string>> special_tokens;
};

/// path: a directory with tokenizer files (no weights needed) or a .gguf file. Throws Error naming file and field.
TokenizerSource load_tokenizer(const std::string& path);

}  // namespace tokenmill
