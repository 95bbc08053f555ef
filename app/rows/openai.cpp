#include "app/rows/openai.h"

#include <fmt/format.h>

#include <iterator>

#include "app/option_values.h"
#include "app/rows/fields.h"
#include "app/rows/format.h"

namespace tokenmill::rows {
namespace {

using io::JsonValue;

const JsonValue* given(const JsonValue& object, std::string_view name) {
  const JsonValue* value = object.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

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

void append_usage(std::string& out, const RequestOutput& output) {
  fmt::format_to(
      std::back_inserter(out), ",\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{}}}",
      output.num_prompt_tokens, output.num_completion_tokens, output.num_prompt_tokens + output.num_completion_tokens);
}

std::string beginning(const RowItem& item, int status) {
  return fmt::format(
      "{{\"id\":\"batch_req_{}\",\"custom_id\":{},\"response\":{{\"status_code\":{},\"request_id\":\"req_{}\","
      "\"body\":",
      item.digest, item.id_json, status, item.digest);
}

void append_choice(std::string& out, const RowItem& item, const SequenceOutput& sequence) {
  const bool chat = item.shape == RowShape::kChatCompletion;
  fmt::format_to(std::back_inserter(out), "{{\"index\":{},{}", sequence.index,
                 chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
  io::append_json_string(out, sequence.text);
  if (chat) out += ",\"refusal\":null}";
  if (item.return_token_ids) {
    out += ",\"token_ids\":";
    append_ids(out, sequence.token_ids);
  }
  fmt::format_to(std::back_inserter(out),
                 ",\"logprobs\":null,\"finish_reason\":\"{}\",\"stop_reason\":", to_string(sequence.finish_reason));
  append_stop_reason(out, sequence.stop_reason);
  out += '}';
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

std::string format_openai(const RowItem& item, const RequestOutput& output, const OpenAiContext& context) {
  const bool chat = item.shape == RowShape::kChatCompletion;
  std::string out = beginning(item, 200);
  fmt::format_to(std::back_inserter(out),
                 "{{\"id\":\"{}-{}\",\"object\":\"{}\",\"created\":{},\"model\":", chat ? "chatcmpl" : "cmpl",
                 item.digest, chat ? "chat.completion" : "text_completion", context.created);
  io::append_json_string(out, context.model);
  out += ",\"choices\":[";
  for (const SequenceOutput& sequence : output.outputs) {
    if (&sequence != &output.outputs[0]) out += ',';
    append_choice(out, item, sequence);
  }
  out += ']';
  append_usage(out, output);
  if (item.return_token_ids) {
    out += ",\"prompt_token_ids\":";
    append_ids(out, item.request.prompt_token_ids);
  }
  return out + "}},\"error\":null}";
}

std::string format_openai_error(const RowItem& item, const RowError& error) {
  std::string out = beginning(item, error.ours ? 500 : 400) + "{\"error\":{\"message\":";
  io::append_json_string(out, error.message);
  fmt::format_to(std::back_inserter(out),
                 ",\"type\":\"{}\",\"param\":", error.ours ? "server_error" : "invalid_request_error");
  if (error.field.empty())
    out += "null";
  else
    io::append_json_string(out, error.field);
  out += ",\"code\":";
  io::append_json_string(out, error.code);
  return out + "}}},\"error\":null}";
}

}  // namespace tokenmill::rows
