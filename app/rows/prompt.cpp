#include "app/rows/prompt.h"

#include <algorithm>

#include "app/rows/values.h"
#include "kernels/core/error.h"

namespace tokenmill::rows {
namespace {

using Ids = std::vector<int32_t>;

/// The row's chat with the job's template variables where the row has none of the same name.
text::ChatRequest with_defaults(text::ChatRequest chat, const io::JsonValue& defaults) {
  std::vector<io::JsonValue::Member> members;
  if (chat.chat_template_kwargs.is_object()) members = chat.chat_template_kwargs.members();
  for (const auto& [name, value] : defaults.members())
    if (chat.chat_template_kwargs.is_null() || chat.chat_template_kwargs.find(name) == nullptr)
      members.emplace_back(name, value);
  chat.chat_template_kwargs = io::JsonValue::object(std::move(members));
  return chat;
}

}  // namespace

const char* to_string(Overlong overlong) {
  switch (overlong) {
    case Overlong::kError:
      return "error";
    case Overlong::kTruncateLeft:
      return "truncate-left";
    case Overlong::kTruncateRight:
      return "truncate-right";
    case Overlong::kSkip:
      return "skip";
  }
  return "unknown";
}

PromptTokens tokenize_prompt(const ParsedRow& row, const text::Tokenizer& tokenizer, const ChatRenderer& render_chat,
                             bool plain_specials) {
  if (const auto* ids = std::get_if<Ids>(&row.prompt)) return {*ids, "", false};
  PromptTokens prompt;
  const auto* chat = std::get_if<text::ChatRequest>(&row.prompt);
  const bool specials = row.settings.add_special_tokens.value_or(chat == nullptr && plain_specials);
  try {
    if (chat != nullptr && !render_chat)
      throw BadRow{"invalid_request", "messages",
                   "messages are given and the model has no chat template; give prompt, or run with --chat-template"};
    const io::JsonValue& variables = row.settings.chat_template_kwargs;
    if (chat == nullptr)
      prompt.text = std::get<std::string>(row.prompt);
    else if (variables.is_null())
      prompt.text = render_chat(*chat, row.chat_template);
    else
      prompt.text = render_chat(with_defaults(*chat, variables), row.chat_template);
    prompt.ids = tokenizer.encode(prompt.text, {.add_special_tokens = specials});
    return prompt;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw BadRow{"invalid_request", row.prompt_field, error.what()};
  }
}

std::optional<FieldError> check_truncation(const RowSettings& settings, int64_t max_model_len) {
  const int64_t asked = settings.truncate_prompt_tokens.value_or(0);
  if (asked <= max_model_len) return std::nullopt;
  return FieldError{"truncate_prompt_tokens",
                    fmt::format("truncate_prompt_tokens is {}; it must be at most {}, the model's length", asked,
                                max_model_len)};
}

void cut_prompt(PromptTokens& prompt, int64_t max_tokens, TruncationSide side, const ParsedRow& row,
                const text::Tokenizer& tokenizer) {
  Ids& ids = prompt.ids;
  const auto size = static_cast<int64_t>(ids.size());
  if (size <= max_tokens) return;
  prompt.cut = true;
  if (side == TruncationSide::kRight) {
    ids.resize(static_cast<size_t>(max_tokens));
    return;
  }
  const bool keep_first = max_tokens > 0 && !std::holds_alternative<Ids>(row.prompt) && tokenizer.bos_id() == ids[0];
  ids.erase(ids.begin() + (keep_first ? 1 : 0), ids.begin() + (size - max_tokens) + (keep_first ? 1 : 0));
}

std::string echo_text(const ParsedRow& row, const PromptTokens& prompt, const text::Tokenizer& tokenizer) {
  if (const auto* chat = std::get_if<text::ChatRequest>(&row.prompt)) {
    if (!chat->messages.is_array() || chat->messages.items().empty()) return "";
    const io::JsonValue& last = chat->messages.items().back();
    const io::JsonValue* role = last.is_object() ? given(last, "role") : nullptr;
    const io::JsonValue* content = last.is_object() ? given(last, "content") : nullptr;
    const bool own = role != nullptr && role->is_string() && role->as_string() == "assistant";
    return own && content != nullptr && content->is_string() ? content->as_string() : "";
  }
  if (!prompt.cut && std::holds_alternative<std::string>(row.prompt)) return prompt.text;
  return tokenizer.decode(prompt.ids, decode_options(row.settings.sampling));
}

}  // namespace tokenmill::rows
