#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/rows/row.h"
#include "engine/text/tokenizer.h"

namespace tokenmill::rows {

/// Renders a chat with the row's own template, or with the job's when it has none (chat_template empty). Throws BadRow
/// when the template is not understood or refuses the chat. Thread-safe.
using ChatRenderer = std::function<std::string(const text::ChatRequest&, const std::string& chat_template)>;

/// What becomes of a prompt that leaves no token of the model's length to generate.
enum class Overlong : uint8_t {
  kError,          ///< an error row
  kTruncateLeft,   ///< its beginning is dropped
  kTruncateRight,  ///< its end is dropped
  kSkip,           ///< a result that says so and counts as no error
};

const char* to_string(Overlong overlong);  ///< as --overlong names it

/// A row's prompt as the model sees it.
struct PromptTokens {
  std::vector<int32_t> ids;
  std::string text;  ///< what the ids are of: the row's text or the rendered chat; empty for rows of ids
  bool cut = false;  ///< ids were dropped since
};

/// Tokenizes a row's prompt. plain_specials: start and end tokens around plain text when the row does not say (chats:
/// none, their template writes its own). render_chat may be empty. Throws BadRow.
PromptTokens tokenize_prompt(const ParsedRow& row, const text::Tokenizer& tokenizer, const ChatRenderer& render_chat,
                             bool plain_specials = true);

/// truncate_prompt_tokens against the model's length.
std::optional<FieldError> check_truncation(const RowSettings& settings, int64_t max_model_len);

/// Drops ids until at most max_tokens are left. The tokenizer's start token, where the prompt begins with it and is not
/// given as ids, stays when the left side is dropped: models need it.
void cut_prompt(PromptTokens& prompt, int64_t max_tokens, TruncationSide side, const ParsedRow& row,
                const text::Tokenizer& tokenizer);

/// What `echo` puts before the generated text: a prompt's text; of a chat, the final message when it is the
/// assistant's.
std::string echo_text(const ParsedRow& row, const PromptTokens& prompt, const text::Tokenizer& tokenizer);

}  // namespace tokenmill::rows
