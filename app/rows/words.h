#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "app/rows/row.h"
#include "engine/text/tokenizer.h"

/// Words of rows and options as the token sequences that the engine compares.
namespace tokenmill::rows {

/// The token sequences of each word: at the start of a text, and behind a space where that is not the same with more in
/// front. (vLLM leaves out the second when it has another number of tokens, and such words still appear.) Throws BadRow
/// for a word without tokens.
std::vector<std::vector<int32_t>> tokenize_bad_words(const text::Tokenizer& tokenizer,
                                                     const std::vector<std::string>& words, int64_t vocab_size);

/// "\" is\" is token 261 of the tokenizer, and the model's vocabulary ends at 258: ..." when ids, which the tokenizer gave,
/// hold one that a model of vocab_size tokens has not; "" otherwise.
std::string beyond_vocabulary(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids, int64_t vocab_size);

/// What surrounds a model's thinking. Both lists are empty when the model has no such markers.
struct ThinkingMarkers {
  std::vector<int32_t> start_token_ids, end_token_ids;
};

/// The markers named by the job, else the pair that the tokenizer's vocabulary knows (<think> and </think>, or the like
/// of other model families), else none. Throws Error(kConfig) when only one is named or a name has no tokens.
ThinkingMarkers find_thinking_markers(const text::Tokenizer& tokenizer, const std::string& start,
                                      const std::string& end);

/// The budget for a row with this prompt. Throws BadRow when the model has no markers.
ThinkingBudget thinking_budget(int64_t max_tokens, const ThinkingMarkers& markers,
                               const std::vector<int32_t>& prompt_token_ids);

}  // namespace tokenmill::rows
