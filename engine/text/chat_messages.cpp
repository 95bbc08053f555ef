#include "engine/text/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/text/jinja_unicode.h"
#include "kernels/core/error.h"

namespace tokenmill::text {
namespace {

constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";

io::JsonValue* find_member(io::JsonValue& object, std::string_view name) {
  for (auto& [key, value] : object.members())
    if (key == name) return &value;
  return nullptr;
}

std::optional<ChatFault> check_objects(const io::JsonValue& list, const char* field) {
  if (list.is_null()) return std::nullopt;
  if (!list.is_array())
    return ChatFault{field, fmt::format("is of type {}; it must be a list of objects", list.kind_name())};
  for (size_t i = 0; i < list.items().size(); ++i)
    if (!list.items()[i].is_object())
      return ChatFault{fmt::format("{}[{}]", field, i),
                       fmt::format("is of type {}; it must be an object", list.items()[i].kind_name())};
  return std::nullopt;
}

std::optional<ChatFault> check_parts(const io::JsonValue& parts, const std::string& field) {
  for (size_t i = 0; i < parts.items().size(); ++i) {
    const io::JsonValue& part = parts.items()[i];
    const std::string place = fmt::format("{}[{}]", field, i);
    if (!part.is_object())
      return ChatFault{place, fmt::format("is of type {}; it must be an object", part.kind_name())};
    const io::JsonValue* type = part.find("type");
    if (type == nullptr || !type->is_string())
      return ChatFault{place + ".type", "is missing or not a string; only \"text\" parts are supported"};
    if (type->as_string() != "text")
      return ChatFault{place + ".type", fmt::format("is \"{}\"; only \"text\" parts are supported", type->as_string())};
    const io::JsonValue* text = part.find("text");
    if (text == nullptr || !text->is_string()) return ChatFault{place + ".text", "is missing or not a string"};
  }
  return std::nullopt;
}

std::string join_parts(const io::JsonValue& parts) {
  std::string text;
  for (const io::JsonValue& part : parts.items()) {
    if (&part != &parts.items().front()) text += '\n';
    text += part.at("text").as_string();
  }
  return text;
}

std::optional<ChatFault> prepare_content(io::JsonValue& content, const std::string& field, ContentFormat format) {
  if (content.is_string() || content.is_null()) return std::nullopt;
  if (!content.is_array())
    return ChatFault{
        field, fmt::format("is of type {}; it must be a string, null or a list of text parts", content.kind_name())};
  if (auto fault = check_parts(content, field)) return fault;
  if (format == ContentFormat::kString) content = io::JsonValue::string(join_parts(content));
  return std::nullopt;
}

// tool_calls[].function.arguments as JSON text becomes the value it stands for.
std::optional<ChatFault> prepare_tool_calls(io::JsonValue& message, const std::string& field) {
  io::JsonValue* calls = find_member(message, "tool_calls");
  if (calls == nullptr || !calls->is_array()) return std::nullopt;
  if (calls->items().empty()) {
    std::erase_if(message.members(), [](const auto& member) { return member.first == "tool_calls"; });
    return std::nullopt;
  }
  for (size_t i = 0; i < calls->items().size(); ++i) {
    io::JsonValue& call = calls->items()[i];
    io::JsonValue* function = call.is_object() ? find_member(call, "function") : nullptr;
    if (function == nullptr || !function->is_object()) continue;
    io::JsonValue* arguments = find_member(*function, "arguments");
    const bool empty =
        arguments == nullptr || arguments->is_null() || (arguments->is_string() && arguments->as_string().empty());
    if (empty) {
      if (arguments == nullptr)
        function->members().emplace_back("arguments", io::JsonValue::object());
      else
        *arguments = io::JsonValue::object();
      continue;
    }
    if (!arguments->is_string()) continue;
    const std::string place = fmt::format("{}.tool_calls[{}].function.arguments", field, i);
    try {
      *arguments = io::parse_json(std::string(arguments->as_string()), place);
    } catch (const Error& error) {
      return ChatFault{place, fmt::format("is text that is not JSON: {}", error.what())};
    }
  }
  return std::nullopt;
}

}  // namespace

bool is_own_field(std::string_view variable) {
  constexpr std::string_view kNames[] = {"messages",      "tools",
                                         "documents",     "add_generation_prompt",
                                         "chat_template", "continue_final_message"};
  return std::find(std::begin(kNames), std::end(kNames), variable) != std::end(kNames);
}

std::optional<ChatFault> check_request(const ChatRequest& request) {
  if (!request.messages.is_array())
    return ChatFault{"messages",
                     fmt::format("is of type {}; it must be a list of objects", request.messages.kind_name())};
  if (request.messages.items().empty()) return ChatFault{"messages", "is empty; give at least one message"};
  if (auto fault = check_objects(request.messages, "messages")) return fault;
  if (auto fault = check_objects(request.tools, "tools")) return fault;
  if (auto fault = check_objects(request.documents, "documents")) return fault;
  if (!request.chat_template_kwargs.is_null() && !request.chat_template_kwargs.is_object())
    return ChatFault{"chat_template_kwargs",
                     fmt::format("is of type {}; it must be an object", request.chat_template_kwargs.kind_name())};
  if (request.chat_template_kwargs.is_object())
    for (const auto& [name, value] : request.chat_template_kwargs.members())
      if (is_own_field(name) || (name == "reasoning_effort" && !request.reasoning_effort.empty()))
        return ChatFault{"chat_template_kwargs." + name,
                         fmt::format("would be ignored: {0} is a field of its own; give it as {0}", name)};
  if (request.continue_final_message && request.add_generation_prompt)
    return ChatFault{"continue_final_message",
                     "is true together with add_generation_prompt; a prompt cannot end inside the last message and "
                     "begin a new one (set add_generation_prompt to false)"};
  return std::nullopt;
}

std::optional<ChatFault> prepare_messages(io::JsonValue& messages, ContentFormat format) {
  for (size_t i = 0; i < messages.items().size(); ++i) {
    io::JsonValue& message = messages.items()[i];
    const std::string field = fmt::format("messages[{}]", i);
    const io::JsonValue* role = message.find("role");
    if (role == nullptr) return ChatFault{field + ".role", "is missing"};
    if (!role->is_string())
      return ChatFault{field + ".role", fmt::format("is of type {}; it must be a string", role->kind_name())};
    const bool is_assistant = role->as_string() == "assistant";
    if (io::JsonValue* content = find_member(message, "content"))
      if (auto fault = prepare_content(*content, field + ".content", format)) return fault;
    if (is_assistant)
      if (auto fault = prepare_tool_calls(message, field)) return fault;
  }
  return std::nullopt;
}

std::string fill_missing_content(io::JsonValue& messages) {
  std::string first;
  for (size_t i = 0; i < messages.items().size(); ++i) {
    io::JsonValue& message = messages.items()[i];
    io::JsonValue* content = find_member(message, "content");
    if (content != nullptr && !content->is_null()) continue;
    if (first.empty()) first = fmt::format("messages[{}].content", i);
    if (content == nullptr)
      message.members().emplace_back("content", io::JsonValue::string(""));
    else
      *content = io::JsonValue::string("");
  }
  return first;
}

std::optional<ChatFault> mark_final_message(io::JsonValue& messages, ContinuationMark& mark) {
  const std::string field = fmt::format("messages[{}].content", messages.items().size() - 1);
  io::JsonValue* content = find_member(messages.items().back(), "content");
  if (content == nullptr || content->is_null())
    return ChatFault{field, fmt::format("is {}, but continue_final_message needs a text to continue",
                                        content == nullptr ? "missing" : "null")};
  if (content->is_array()) {
    if (content->items().empty())
      return ChatFault{field, "has no text part, but continue_final_message needs a text to continue"};
    content = find_member(content->items().back(), "text");
  }
  mark.final_text = content->as_string();
  *content = io::JsonValue::string(mark.final_text + std::string(kMark));
  return std::nullopt;
}

std::optional<ChatFault> cut_at_mark(std::string& prompt, const ContinuationMark& mark) {
  const std::string_view bare_mark = kMark.substr(0, kMark.size() - 1);
  const std::string_view text = jinja::strip_space(mark.final_text, true, true);
  const size_t place = jinja::rfind_text(prompt, bare_mark);
  if (place == std::string::npos || jinja::find_text(prompt, text) == std::string::npos)
    return ChatFault{"continue_final_message",
                     "is set, but the chat template does not keep the whole text of the final message"};
  const bool keeps_space = prompt.compare(place, kMark.size(), kMark) == 0;
  prompt.resize(place);
  if (!keeps_space) prompt.resize(jinja::strip_space(prompt, false, true).size());
  return std::nullopt;
}

}  // namespace tokenmill::text
