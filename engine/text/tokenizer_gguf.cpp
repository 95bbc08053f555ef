#include "engine/text/tokenizer_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/text/tokenizer_parts.h"
#include "engine/text/unicode.h"
#include "kernels/core/error.h"

namespace tokenmill::text {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSupportedPre = "gpt-2, smollm, llama-bpe (also llama3, llama-v3), qwen2";
constexpr size_t kMaxPieceBytes = 4096;  // every split of a piece is looked up: bounded work for a damaged file

void check_lengths(const GgufVocabulary& v, std::string_view where) {
  const auto check = [&](size_t size, const char* name) {
    if (size != v.tokens.size()) {
      throw Error(ErrorKind::kInput, "{}: tokenizer.ggml.{} has {} entries, tokenizer.ggml.tokens {}", where, name,
                  size, v.tokens.size());
    }
  };
  if (v.tokens.empty()) throw Error(ErrorKind::kInput, "{}: tokenizer.ggml.tokens is empty", where);
  if (!v.token_types.empty()) check(v.token_types.size(), "token_type");
  if (v.model == "llama") check(v.scores.size(), "scores");
}

std::optional<int32_t> checked_id(const std::optional<int64_t>& id, const GgufVocabulary& v, const char* name,
                                  std::string_view where) {
  if (!id) return std::nullopt;
  if (*id < 0 || *id >= static_cast<int64_t>(v.tokens.size())) {
    throw Error(ErrorKind::kInput, "{}: tokenizer.ggml.{} is {}; ids run from 0 to {}", where, name, *id,
                v.tokens.size() - 1);
  }
  return static_cast<int32_t>(*id);
}

int32_t type_of_token(const GgufVocabulary& v, size_t id) {
  return v.token_types.empty() ? GgufVocabulary::kNormal : v.token_types[id];
}

Vocabulary build_vocabulary(const GgufVocabulary& v, std::string_view where) {
  std::vector<std::pair<std::string, int64_t>> entries;
  entries.reserve(v.tokens.size());
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    entries.emplace_back(replace_invalid_utf8(v.tokens[id]), static_cast<int64_t>(id));
  }
  return Vocabulary::build(std::move(entries), where, /*repeated_spellings=*/true);
}

/// Control and unknown tokens are special; user-defined ones are ordinary text that is never split.
std::vector<AddedToken> added_tokens(const GgufVocabulary& v, const Vocabulary& vocabulary, bool sentencepiece) {
  std::vector<AddedToken> out;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const int32_t type = type_of_token(v, id);
    const bool special = type == GgufVocabulary::kControl || type == GgufVocabulary::kUnknown;
    if (!special && type != GgufVocabulary::kUserDefined) continue;
    AddedToken token;
    token.content = vocabulary.token(static_cast<int32_t>(id));
    // Some converters leave SentencePiece's mark in user-defined pieces; the text they stand for has spaces.
    if (sentencepiece && !special) token.content = Replacement::of_text(std::string(kMark), " ").apply(token.content);
    token.id = static_cast<int32_t>(id);
    token.special = special;
    out.push_back(std::move(token));
  }
  return out;
}

std::vector<Merge> listed_merges(const GgufVocabulary& v, const Vocabulary& vocabulary, std::string_view where) {
  std::vector<Merge> merges;
  merges.reserve(v.merges.size());
  for (size_t i = 0; i < v.merges.size(); ++i) {
    const std::string_view text = v.merges[i];
    const size_t space = text.find(' ', 1);  // a left half never is empty
    const auto left = vocabulary.find(text.substr(0, space));
    const auto right = space == std::string_view::npos ? std::nullopt : vocabulary.find(text.substr(space + 1));
    const auto result =
        left && right ? vocabulary.find(vocabulary.token(*left) + vocabulary.token(*right)) : std::nullopt;
    if (!result) {
      throw Error(ErrorKind::kInput,
                  "{}: tokenizer.ggml.merges[{}] is \"{}\"; allowed: \"left right\" of tokens whose join is a "
                  "token",
                  where, i, text);
    }
    merges.push_back({*left, *right, static_cast<uint32_t>(i), *result});
  }
  return merges;
}

bool is_piece(const GgufVocabulary& v, size_t id) {
  const int32_t type = type_of_token(v, id);
  return type != GgufVocabulary::kControl && type != GgufVocabulary::kUnknown && type != GgufVocabulary::kByte;
}

/// SentencePiece merges whatever neighbours form the piece with the best score: as pairs, every split of every piece
/// whose halves are pieces, ranked by the score of the whole.
std::vector<Merge> scored_merges(const GgufVocabulary& v, const Vocabulary& vocabulary, std::string_view where) {
  std::vector<size_t> order;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    if (std::isnan(v.scores[id])) throw Error(ErrorKind::kInput, "{}: tokenizer.ggml.scores[{}] is NaN", where, id);
    if (!is_piece(v, id)) continue;
    if (v.tokens[id].size() > kMaxPieceBytes) {
      throw Error(ErrorKind::kInput, "{}: tokenizer.ggml.tokens[{}] has {} bytes; at most {}", where, id,
                  v.tokens[id].size(), kMaxPieceBytes);
    }
    order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return v.scores[a] > v.scores[b]; });
  const auto half = [&](std::string_view text) {
    const auto id = vocabulary.find(text);
    return id && is_piece(v, static_cast<size_t>(*id)) ? id : std::nullopt;
  };
  std::vector<Merge> merges;
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && v.scores[order[i]] != v.scores[order[i - 1]]) ++rank;
    const auto id = static_cast<int32_t>(order[i]);
    const std::string_view piece = vocabulary.token(id);
    if (vocabulary.find(piece) != id) continue;  // a repeated spelling
    for (size_t cut = 0; cut < piece.size();) {
      cut += first_character(piece.substr(cut)).bytes;
      if (cut >= piece.size()) break;
      const auto left = half(piece.substr(0, cut));
      const auto right = left ? half(piece.substr(cut)) : std::nullopt;
      if (left && right) merges.push_back({*left, *right, rank, id});
    }
  }
  return merges;
}

/// Split pattern and normalizer of a "gpt2" model by its name for them.
void set_up_pre_tokenizer(const std::string& pre, Normalizer& normalizer, PreTokenizer& out, std::string_view where) {
  const auto split = [&](std::string_view pattern) {
    out.add(PreTokenizer::Split{Regex(pattern, where), SplitBehavior::kIsolated, false});
  };
  if (pre == "gpt-2") {
    split(kGpt2Pattern);
  } else if (pre == "smollm") {
    out.add(PreTokenizer::CharacterSplit{&is_numeric, SplitBehavior::kIsolated});
    split(kGpt2Pattern);
  } else if (pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3") {
    split(kLlama3Pattern);
  } else if (pre == "qwen2") {
    normalizer.add(UnicodeForm::kNfc);
    split(kQwen2Pattern);
  } else {
    throw Error(ErrorKind::kInput, "{}: tokenizer.ggml.pre is \"{}\"; supported: {}", where, pre, kSupportedPre);
  }
}

bool is_llama3(const std::string& pre) { return pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3"; }

TokenizerParts byte_level_parts(const GgufVocabulary& v, std::string_view where) {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  set_up_pre_tokenizer(v.pre, normalizer, pre_tokenizer, where);
  Vocabulary vocabulary = build_vocabulary(v, where);
  std::vector<AddedToken> added = added_tokens(v, vocabulary, /*sentencepiece=*/false);
  const std::vector<Merge> merges = listed_merges(v, vocabulary, where);
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = is_llama3(v.pre);
  Decoder decoder;
  decoder.add(Decoder::ByteLevel{}, where);
  return TokenizerParts{.added_tokens = std::move(added),
                        .normalizer = std::move(normalizer),
                        .pre_tokenizer = std::move(pre_tokenizer),
                        .model = BpeModel(std::move(vocabulary), merges, options),
                        .decoder = std::move(decoder)};
}

TokenizerParts sentencepiece_parts(const GgufVocabulary& v, std::string_view where) {
  const bool prefix = v.add_space_prefix.value_or(true);
  const std::string mark(kMark);
  Normalizer normalizer;
  if (prefix) normalizer.add(Normalizer::Prepend{mark});
  normalizer.add(Replacement::of_text(" ", mark));
  Decoder decoder;
  decoder.add(Replacement::of_text(mark, " "), where);
  decoder.add(Decoder::ByteFallback{}, where);
  decoder.add(Decoder::Fuse{}, where);
  if (prefix) decoder.add(Decoder::Strip{" ", 1, 0}, where);
  Vocabulary vocabulary = build_vocabulary(v, where);
  std::vector<AddedToken> added = added_tokens(v, vocabulary, /*sentencepiece=*/true);
  const std::vector<Merge> merges = scored_merges(v, vocabulary, where);
  BpeOptions options;
  options.byte_fallback = true;
  options.fuse_unk = true;
  options.unk_id = checked_id(v.unk_id, v, "unknown_token_id", where);
  return TokenizerParts{.added_tokens = std::move(added),
                        .normalizer = std::move(normalizer),
                        .pre_tokenizer = {},
                        .model = BpeModel(std::move(vocabulary), merges, options),
                        .decoder = std::move(decoder)};
}

}  // namespace

Tokenizer load_tokenizer_gguf(GgufVocabulary v, std::string_view where) {
  if (v.model != "gpt2" && v.model != "llama") {
    throw Error(ErrorKind::kInput,
                "{}: tokenizer.ggml.model is \"{}\"; supported: gpt2 (byte-level BPE), llama (SentencePiece "
                "BPE)",
                where, v.model);
  }
  check_lengths(v, where);
  TokenizerParts parts = v.model == "gpt2" ? byte_level_parts(v, where) : sentencepiece_parts(v, where);
  parts.bos_id = checked_id(v.bos_id, v, "bos_token_id", where);
  parts.eos_id = checked_id(v.eos_id, v, "eos_token_id", where);
  parts.pad_id = checked_id(v.pad_id, v, "padding_token_id", where);
  parts.unk_id = checked_id(v.unk_id, v, "unknown_token_id", where);
  if (v.add_bos.value_or(v.model == "llama" || is_llama3(v.pre))) {
    if (!parts.bos_id)
      throw Error(ErrorKind::kInput, "{}: a BOS token is to be added, but tokenizer.ggml.bos_token_id is missing",
                  where);
    parts.before.push_back(*parts.bos_id);
  }
  if (v.add_eos.value_or(false)) {
    if (!parts.eos_id)
      throw Error(ErrorKind::kInput, "{}: an EOS token is to be added, but tokenizer.ggml.eos_token_id is missing",
                  where);
    parts.after.push_back(*parts.eos_id);
  }
  return Tokenizer(std::move(parts));
}

}  // namespace tokenmill::text
