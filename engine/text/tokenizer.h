#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tokenmill::text {

struct TokenizerParts;  // tokenizer_parts.h: what the loaders fill

struct EncodeOptions {
  /// Add what the tokenizer's template puts around a plain prompt (BOS, EOS). False for rendered chats: their template
  /// has written its own.
  bool add_special_tokens = true;
  /// Text that spells a special token becomes that token. False: it is encoded as ordinary text.
  bool parse_special = true;
};

struct DecodeOptions {
  /// Special tokens add nothing.
  bool skip_special_tokens = false;
  /// False: an added token straight behind another stands as it is spelled, without what the decoder puts between
  /// tokens (vLLM's rule; of no effect where special tokens are skipped).
  bool spaces_between_special_tokens = true;
};

/// Text to token ids and back. Immutable: one object may be used by any number of threads. Copies share everything.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerParts parts);

  /// Token ids of a text of any length; linear in it (n log n within one piece). Invalid UTF-8 is encoded as if each
  /// maximal invalid part were U+FFFD. Throws Error(kInput) when a split pattern hits PCRE2's limits on this text.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// Text of ids: valid UTF-8; bytes that are no character become U+FFFD. Ids outside the vocabulary add nothing.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  /// 1 + the largest id. Ids below it may have no token.
  int32_t vocab_size() const;
  /// Id of a token by its spelling in the vocabulary ("\u0120the", "<|im_end|>"); nullopt when there is none.
  std::optional<int32_t> token_to_id(std::string_view token) const;
  /// Spelling of an id in the vocabulary; nullopt for ids without a token.
  std::optional<std::string_view> id_to_token(int32_t id) const;
  /// The bytes an id adds in the middle of a text; not always whole characters, empty for ids without a token.
  std::string token_bytes(int32_t id) const;
  /// True for control tokens: those that skip_special_tokens leaves out.
  bool is_special(int32_t id) const;

  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> pad_id() const;
  std::optional<int32_t> unk_id() const;

 private:
  friend class Detokenizer;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// Decodes ids one at a time, in linear time: the pieces returned by push() and finish(), put together, are what
/// Tokenizer::decode() gives for all ids at once. A character is released as soon as its last byte is there, never as
/// U+FFFD while a later id could complete it. For one thread and one text at a time; keeps its tokenizer alive.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {});
  ~Detokenizer();
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;

  /// Appends the text that this id completes to out (often a word, sometimes nothing). Any id is allowed.
  void push(int32_t id, std::string& out);
  /// Appends what was held back, incomplete characters as U+FFFD, and starts anew.
  void finish(std::string& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tokenmill::text
