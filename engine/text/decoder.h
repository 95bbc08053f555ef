#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/text/normalizer.h"

namespace tokenmill::text {

/// Turns the spellings of tokens into text, one token at a time: a chain of steps, each of which may hold back what a
/// later token can still change. Immutable; what is held back lives in a State per text.
class Decoder {
 public:
  /// GPT-2's characters back to bytes, bytes to text; what is no UTF-8 becomes one U+FFFD per maximal invalid part.
  struct ByteLevel {};
  /// Tokens <0x00>..<0xFF> are bytes, characters of a run of them are released as they complete; each byte of the run
  /// that belongs to no character becomes one U+FFFD, as SentencePiece does it. (The tokenizers package turns the whole
  /// run into U+FFFD, its good characters too, which no text released earlier could follow.)
  struct ByteFallback {};
  /// All tokens become one for the steps behind.
  struct Fuse {};
  /// Cuts up to `left` and `right` times `character` off the two ends of each token.
  struct Strip {
    std::string character;
    size_t left;
    size_t right;
  };
  /// The mark becomes ' '; in the first token it vanishes when drop_first.
  struct Metaspace {
    std::string mark;
    bool drop_first;
  };
  /// A ' ' between tokens: what happens without a decoder.
  struct Join {};
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Strip, Metaspace, Join, Replacement>;

  struct StepState {
    std::string held;     ///< bytes (ByteLevel, ByteFallback) or trailing characters (Strip) kept for the next token
    size_t stripped = 0;  ///< Strip: characters cut off the front of the current token
    bool front = true;    ///< Strip: still at the front of the current token
    int64_t tokens = 0;   ///< tokens begun so far
  };
  using State = std::vector<StepState>;

  /// Throws Error(kInput) starting with `where` for an order of steps that cannot run token by token.
  void add(Step step, std::string_view where);
  State start() const { return State(steps_.size()); }
  /// Appends to out the text that is certain once `token` follows.
  void push(State& state, std::string_view token, std::string& out) const;
  /// Appends what is still held back.
  void finish(State& state, std::string& out) const;
  /// True when tokens are spelled in GPT-2's byte characters.
  bool byte_level() const;
  /// The bytes that one token adds in the middle of a text.
  std::string token_bytes(std::string_view token) const;

 private:
  void feed(State& state, size_t step, std::string_view chunk, bool begins_token, std::string& out) const;

  std::vector<Step> steps_;
  bool chunked_ = false;  // behind ByteLevel, ByteFallback and Fuse a token may arrive in several chunks
};

}  // namespace tokenmill::text
