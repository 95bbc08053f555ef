#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "engine/text/chat_template.h"

namespace tokenmill::text {

/// A fault of one row: which field, and what is wrong with it.
struct ChatFault {
  std::string field;
  std::string text;
};

/// Whether a template variable is made of a field of its own, whatever chat_template_kwargs say.
bool is_own_field(std::string_view variable);

/// Checks a request and brings its messages into the form that the template wants. nullopt when all is well.
std::optional<ChatFault> check_request(const ChatRequest& request);
std::optional<ChatFault> prepare_messages(io::JsonValue& messages, ContentFormat format);

/// Gives messages without content (or with null) an empty one; returns the field of the first, "" when there is none.
std::string fill_missing_content(io::JsonValue& messages);

/// Marks the end of the final message's text, so that the rendered prompt can be cut there.
struct ContinuationMark {
  std::string final_text;  ///< the message's text before it was marked
};
std::optional<ChatFault> mark_final_message(io::JsonValue& messages, ContinuationMark& mark);
/// Cuts `prompt` at the mark, as transformers does. Fault when the template dropped the text or the mark.
std::optional<ChatFault> cut_at_mark(std::string& prompt, const ContinuationMark& mark);

}  // namespace tokenmill::text
