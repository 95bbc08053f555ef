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
  out.mentions_effort_ = source.find("reasoning_effort") != std::string_view::npos;
  return out;
}

namespace {

RenderedChat failed(const ChatFault& fault) {
  RenderedChat chat;
  chat.error = fmt::format("field \"{}\" {}", fault.field, fault.text);
  chat.error_field = fault.field;
  return chat;
}

}  // namespace

RenderedChat ChatTemplate::render(const ChatRequest& request, const jinja::CivilTime& date,
                                  const jinja::RenderLimits& limits) const {
  if (const auto fault = check_request(request)) return failed(*fault);
  if (!request.reasoning_effort.empty() && !mentions_effort_)
    return failed({"reasoning_effort", "is given, but the chat template does not read it; leave it out"});
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
  variables.emplace_back("messages", std::move(messages));
  variables.emplace_back("tools", request.tools);
  variables.emplace_back("documents", request.documents);
  variables.emplace_back("add_generation_prompt", io::JsonValue::boolean(request.add_generation_prompt));

  jinja::RenderResult result = template_.render(variables, date, limits);
  RenderedChat chat;
  if (!result.error.empty()) {
    chat.error = std::move(result.error);
    chat.error_field = "messages";
    return chat;
  }
  chat.text = std::move(result.text);
  if (request.continue_final_message)
    if (const auto fault = cut_at_mark(chat.text, mark)) return failed(*fault);
  return chat;
}

}  // namespace tokenmill::text
