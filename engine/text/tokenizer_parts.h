#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/text/added_tokens.h"
#include "engine/text/bpe.h"
#include "engine/text/decoder.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"

namespace tokenmill::text {

/// What the loaders put together and a Tokenizer is made of.
struct TokenizerParts {
  std::vector<AddedToken> added_tokens;  ///< ids of their own, or of entries of the model's vocabulary
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  std::vector<int32_t> before;  ///< ids in front of a prompt (add_special_tokens)
  std::vector<int32_t> after;   ///< ids behind it
  Decoder decoder;
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> pad_id;
  std::optional<int32_t> unk_id;
};

}  // namespace tokenmill::text
