#include "engine/text/chat_template.h"

#include <fmt/format.h>

#include "engine/text/chat_messages.h"

namespace tokenmill::text {

ChatTemplate ChatTemplate::load(std::string_view source, std::string name,
                                std::vector<std::pair<std::string, std::string>> special_tokens) {
  ChatTemplate out(jinja::Template::parse(source, std::move(name)));
  out.special_tokens_ = std::move(special_tokens);
  out.content_format_ = detect_content_format(out.template_.root());
  out.mentions_content_ = source.find("content") != std::string_view::npos;
  return out;
}

namespace {

RenderedChat failed(const ChatFault& fault) {
  RenderedChat chat;
  chat.error = fmt::format("field \"{}\" {}", fault.field, fault.text);
  chat.error_field = fault.field;
  return chat;
}

bool is_given(const io::JsonValue& list) { return list.is_array() && !list.items().empty(); }

// What a template does not read would be dropped without a word: a fault instead.
std::optional<ChatFault> check_read(const ChatRequest& request, const jinja::Template& chat_template) {
  const std::pair<const char*, bool> fields[] = {{"tools", is_given(request.tools)},
                                                 {"documents", is_given(request.documents)},
                                                 {"reasoning_effort", !request.reasoning_effort.empty()}};
  for (const auto& [field, given] : fields)
    if (given && !chat_template.reads(field))
      return ChatFault{field, fmt::format("is given, but {} does not read it; leave it out, or give a chat_template "
                                          "that does",
                                          chat_template.name())};
  return std::nullopt;
}

}  // namespace

RenderedChat ChatTemplate::render(const ChatRequest& request, const jinja::CivilTime& date,
                                  const jinja::RenderLimits& limits) const {
  if (const auto fault = check_request(request)) return failed(*fault);
  if (const auto fault = check_read(request, template_)) return failed(*fault);
  io::JsonValue messages = request.messages;
  if (const auto fault = prepare_messages(messages, content_format_)) return failed(*fault);
  ContinuationMark mark;
  if (request.continue_final_message) {
    if (!mentions_content_)
      return failed({"continue_final_message", "is set, but the chat template does not use the content of messages"});
    if (const auto fault = mark_final_message(messages, mark)) return failed(*fault);
  }
  jinja::Variables variables;
  for (const auto& [token, text] : special_tokens_) variables.emplace_back(token, io::JsonValue::string(text));
  if (request.chat_template_kwargs.is_object())
    for (const auto& [key, value] : request.chat_template_kwargs.members()) variables.emplace_back(key, value);
  if (!request.reasoning_effort.empty())
    variables.emplace_back("reasoning_effort", io::JsonValue::string(request.reasoning_effort));
  const size_t messages_at = variables.size();
  variables.emplace_back("messages", std::move(messages));
  variables.emplace_back("tools", request.tools);
  variables.emplace_back("documents", request.documents);
  variables.emplace_back("add_generation_prompt", io::JsonValue::boolean(request.add_generation_prompt));

  jinja::RenderResult result = template_.render(variables, date, limits);
  RenderedChat chat;
  if (!result.error.empty()) {
    chat.error = std::move(result.error);
    chat.error_field = "messages";
    // The lack of a text is what is wrong when it is right with an empty one.
    const std::string empty_field = fill_missing_content(variables[messages_at].second);
    if (!empty_field.empty() && template_.render(variables, date, limits).error.empty())
      return failed({empty_field, fmt::format("is missing or null, and the chat template cannot do without ({}); give "
                                              "text, \"\" where there is none",
                                              chat.error)});
    return chat;
  }
  chat.text = std::move(result.text);
  if (request.continue_final_message)
    if (const auto fault = cut_at_mark(chat.text, mark)) return failed(*fault);
  return chat;
}

}  // namespace tokenmill::text
