#include "app/rows/openai.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "app/option_values.h"
#include "app/rows/fields.h"
#include "app/rows/values.h"

namespace tokenmill::rows {
namespace {

using io::JsonValue;

RowShape read_url(const JsonValue& record) {
  const JsonValue* method = given(record, "method");
  if (method != nullptr && !(method->is_string() && method->as_string() == "POST"))
    throw BadRow{"invalid_request", "method", fmt::format("method is {}; it must be \"POST\"", shown(*method))};
  const JsonValue* url = given(record, "url");
  if (url == nullptr)
    throw BadRow{"invalid_request", "url", "url is missing; give /v1/chat/completions or /v1/completions"};
  const std::string text = url->is_string() ? url->as_string() : "";
  if (text == "/v1/chat/completions") return RowShape::kChatCompletion;
  if (text == "/v1/completions") return RowShape::kCompletion;
  throw BadRow{"invalid_request", "url",
               fmt::format("url is {}; this version supports /v1/chat/completions and /v1/completions", shown(*url))};
}

/// A completion's prompt: text, token ids, or a list with one of either.
void read_completion_prompt(const JsonValue& value, ParsedRow& row) {
  row.prompt_field = "prompt";
  const JsonValue* prompt = &value;
  if (prompt->is_array() && !prompt->items().empty() && !prompt->items()[0].is_number()) {
    if (prompt->items().size() > 1)
      throw BadRow{"invalid_request", "prompt",
                   fmt::format("prompt is a list of {} prompts; this version supports one a row: split the row",
                               prompt->items().size())};
    prompt = &prompt->items()[0];
  }
  if (prompt->is_string())
    row.prompt = prompt->as_string();
  else if (prompt->is_array())
    row.prompt = read_token_ids(*prompt, "prompt");
  else
    throw BadRow{"invalid_request", "prompt", fmt::format("prompt is {}; it must be text", shown(value))};
}

/// Answers hold no parsed tool calls yet, so tools pass only where the row asks for none.
void check_tools(const JsonValue& body) {
  const JsonValue* tools = given(body, "tools");
  const JsonValue* choice = given(body, "tool_choice");
  const bool none = choice != nullptr && choice->is_string() && choice->as_string() == "none";
  if (tools != nullptr && !(tools->is_array() && tools->items().empty()) && !none)
    throw BadRow{"invalid_request", "tools",
                 "tools are given; this version does not parse tool calls out of answers: set tool_choice to \"none\", "
                 "or use a native row, whose answer is the model's text"};
}

/// What belongs into the body would be ignored beside it. Other names there are the user's own.
void check_outside_of_body(const JsonValue& record, RowShape shape) {
  for (const auto& [name, ignored] : record.members()) {
    if (name == "custom_id" || name == "method" || name == "url" || name == "body") continue;
    const std::vector<std::string> names = field_names(shape);
    const bool is_field = name == (shape == RowShape::kChatCompletion ? "messages" : "prompt") ||
                          std::find(names.begin(), names.end(), name) != names.end();
    const std::string meant = misspelt_field(name);
    if (is_field || !meant.empty())
      throw BadRow{"invalid_request", name,
                   fmt::format("{} stands beside body; put it into body{}", name, is_field ? "" : ", as " + meant)};
  }
}

}  // namespace

bool is_openai(const JsonValue& record) {
  return record.find("custom_id") != nullptr &&
         (record.find("body") != nullptr || record.find("url") != nullptr || record.find("method") != nullptr);
}

void read_openai(const JsonValue& record, ParsedRow& row) {
  row.shape = RowShape::kChatCompletion;
  const JsonValue& id = record.at("custom_id");
  row.id_json = id.is_string() || id.is_number() ? io::to_json(id) : "null";
  row.shape = read_url(record);
  check_outside_of_body(record, row.shape);
  if (!id.is_string())
    throw BadRow{"invalid_request", "custom_id", fmt::format("custom_id is {}; it must be a string", shown(id))};
  const JsonValue* body = given(record, "body");
  if (body == nullptr || !body->is_object())
    throw BadRow{"invalid_request", "body",
                 body == nullptr ? "body is missing" : fmt::format("body is {}; it must be an object", shown(*body))};
  const bool chat = row.shape == RowShape::kChatCompletion;
  const char* name = chat ? "messages" : "prompt";
  const JsonValue* prompt = given(*body, name);
  if (prompt == nullptr) throw BadRow{"invalid_request", name, fmt::format("field \"{}\" is missing in body", name)};
  if (chat) {
    row.prompt_field = name;
    row.prompt = text::ChatRequest{.messages = *prompt};
    check_tools(*body);
  } else {
    read_completion_prompt(*prompt, row);
  }
  const std::vector<std::string_view> unknown = read_fields(*body, row.shape, {name}, row);
  if (unknown.empty()) return;
  const std::string near = app::closest(unknown[0], field_names(row.shape));
  throw BadRow{"invalid_request", std::string(unknown[0]),
               fmt::format("{} is not a field of {}{}", unknown[0], chat ? "/v1/chat/completions" : "/v1/completions",
                           near.empty() ? "" : fmt::format("; did you mean {}?", near))};
}

}  // namespace tokenmill::rows
