#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "app/rows/row.h"
#include "engine/logprobs.h"
#include "engine/text/tokenizer.h"

namespace tokenmill::rows {

/// Logprobs as JSON in the shapes of native, chat and completion results. A logprob that JSON cannot hold is null.
/// Tokens are shown as their text alone (bytes that are no character as U+FFFD), or as "token_id:5".
class LogprobWriter {
 public:
  using Positions = std::span<const PositionLogprobs>;

  LogprobWriter(const text::Tokenizer& tokenizer, bool tokens_as_ids)
      : tokenizer_(tokenizer), tokens_as_ids_(tokens_as_ids) {}

  /// [{"id","token","logprob","rank","top":[{"id","token","logprob","rank"},...]},...]; "top" where some were asked
  /// for. after_first: null stands before them, for the first token of a prompt.
  void append_native(std::string& out, Positions positions, bool after_first) const;
  /// vLLM's FlatLogprobs: {"start_indices","end_indices","token_ids","logprobs","ranks","decoded_tokens"}; position i
  /// has the entries [start_indices[i], end_indices[i]), the chosen token first. after_first: an empty position before.
  void append_flat(std::string& out, Positions positions, bool after_first) const;
  /// {"content":[{"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"},...]},...]}
  void append_chat(std::string& out, Positions positions) const;
  /// vLLM's prompt_logprobs: [null,{"5":{"logprob","rank","decoded_token"},...},...]
  void append_prompt(std::string& out, Positions positions) const;

  /// The text of a completion, for text_offset.
  struct Completion {
    std::span<const int32_t> echoed_token_ids;  ///< the prompt, when the text begins with it
    Positions echoed;                           ///< of its tokens 1, 2, ...
    Positions generated;
    text::DecodeOptions decode;  ///< how it is made of them
  };
  /// {"tokens":[],"token_logprobs":[],"top_logprobs":[{"token":logprob,...},...],"text_offset":[]}; offsets in
  /// characters.
  void append_completion(std::string& out, const Completion& completion) const;

 private:
  void append_token(std::string& out, int32_t id) const;
  void append_entry(std::string& out, const TokenLogprob& entry) const;
  void append_chat_entry(std::string& out, const TokenLogprob& entry) const;
  void append_top(std::string& out, const PositionLogprobs& position) const;

  const text::Tokenizer& tokenizer_;
  bool tokens_as_ids_;
};

}  // namespace tokenmill::rows
