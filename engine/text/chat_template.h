#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja.h"
#include "io/json.h"

namespace tokenmill::text {

/// What a chat row asks a template for. Null members were not given; templates see them as none. tools, documents and
/// reasoning_effort are errors where the template does not read them; an empty list counts as not given.
struct ChatRequest {
  io::JsonValue messages;              ///< array of {"role": string, "content": string, null or text parts, ...}
  io::JsonValue tools;                 ///< null, or an array of objects
  io::JsonValue documents;             ///< null, or an array of objects
  io::JsonValue chat_template_kwargs;  ///< null, or an object: variables of the template (enable_thinking, ...)
  std::string reasoning_effort;        ///< "": not given
  bool add_generation_prompt = true;
  bool continue_final_message = false;  ///< the prompt ends inside the last message; excludes add_generation_prompt
};

/// A prompt, or why this row has none.
struct RenderedChat {
  std::string text;         ///< empty when error is not
  std::string error;        ///< empty on success
  std::string error_field;  ///< the request's field at fault: "messages", "messages[2].content", "tools", ...
  bool ok() const { return error.empty(); }
};

/// What a template does with `message.content`.
enum class ContentFormat {
  kString,  ///< prints it: a list of text parts is joined with "\n" before
  kParts,   ///< loops over it: a list is passed as it is
};

/// The format, seen in the template's tree as vLLM sees it: kParts when some loop runs over the `content` of a variable
/// that comes from `messages` (directly, by set, by a loop, through filters or slices).
ContentFormat detect_content_format(const jinja::TemplateNode& root);

/// A checkpoint's chat template: messages in, prompt text out, byte for byte as transformers' apply_chat_template with
/// tokenize=False. Immutable: any number of threads may render at once.
///
/// Beyond transformers, with vLLM: a list of text parts is joined when the template wants strings, and
/// tool_calls[].function.arguments of an assistant message given as JSON text are parsed (absent or empty: {}), since
/// templates expect an object there. An empty tool_calls list is left out.
class ChatTemplate {
 public:
  /// special_tokens: variables such as bos_token and eos_token. Throws Error(kConfig) naming the construct, the
  /// template and the line when the template is not understood.
  static ChatTemplate load(std::string_view source, std::string name,
                           std::vector<std::pair<std::string, std::string>> special_tokens);

  /// Variables, later ones win: special tokens, chat_template_kwargs, reasoning_effort, then messages, tools, documents
  /// and add_generation_prompt. `date` is what strftime_now shows. A bad request or a template's raise_exception comes
  /// back as a value: it costs one row.
  RenderedChat render(const ChatRequest& request, const jinja::CivilTime& date,
                      const jinja::RenderLimits& limits = {}) const;

  const std::string& name() const { return template_.name(); }
  ContentFormat content_format() const { return content_format_; }

 private:
  explicit ChatTemplate(jinja::Template parsed) : template_(std::move(parsed)) {}

  jinja::Template template_;
  std::vector<std::pair<std::string, std::string>> special_tokens_;
  ContentFormat content_format_ = ContentFormat::kString;
  bool mentions_content_ = false;  ///< the source holds the word "content"
};

}  // namespace tokenmill::text
