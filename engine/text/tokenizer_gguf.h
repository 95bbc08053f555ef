#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace tokenmill::text {

/// What a GGUF file says about its vocabulary, as read from the tokenizer.ggml.* keys; the reader of the file fills it.
struct GgufVocabulary {
  /// Values of tokenizer.ggml.token_type.
  enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

  std::string model;                 ///< "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
  std::string pre;                   ///< split pattern of "gpt2" models; "llama" models have none
  std::vector<std::string> tokens;   ///< by id
  std::vector<float> scores;         ///< by id; "llama" models merge by them
  std::vector<int32_t> token_types;  ///< by id; empty: all normal
  std::vector<std::string> merges;   ///< "left right", best first; "gpt2" models
  std::optional<int64_t> bos_id;
  std::optional<int64_t> eos_id;
  std::optional<int64_t> unk_id;
  std::optional<int64_t> pad_id;
  std::optional<bool> add_bos;           ///< default: true for "llama" and for pre "llama-bpe"
  std::optional<bool> add_eos;           ///< default: false
  std::optional<bool> add_space_prefix;  ///< "llama" models; default: true
};

/// Builds a tokenizer from a GGUF vocabulary. Throws Error(kInput) that starts with `where` for an unknown model or
/// pre-tokenizer (named, with what is supported), ids out of range, and lists whose lengths disagree.
Tokenizer load_tokenizer_gguf(GgufVocabulary vocabulary, std::string_view where);

}  // namespace tokenmill::text
