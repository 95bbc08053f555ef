#include <fmt/format.h>

#include "app/rows/field_table.h"
#include "app/rows/values.h"

namespace tokenmill::rows {
namespace {

using io::JsonValue;

text::ChatRequest& chat(ParsedRow& row, std::string_view field) {
  if (auto* prompt = std::get_if<text::ChatRequest>(&row.prompt)) return *prompt;
  throw BadRow{"invalid_request", std::string(field),
               fmt::format("{} belongs to messages; this row has {}", field, row.prompt_field)};
}

void set_truncate_prompt_tokens(ParsedRow& row, const JsonValue& value, std::string_view field) {
  const int64_t count = read_integer(value, field);
  if (count < -1) refuse(field, value, "at least 0, or -1 for what the model's length leaves");
  row.settings.truncate_prompt_tokens = count;
}

void set_truncation_side(ParsedRow& row, const JsonValue& value, std::string_view field) {
  const std::string side = value.is_string() ? value.as_string() : "";
  if (side != "left" && side != "right") refuse(field, value, "\"left\" or \"right\"");
  row.settings.truncation_side = side == "left" ? TruncationSide::kLeft : TruncationSide::kRight;
}

}  // namespace

const std::vector<Field>& prompt_fields() {
  static const std::vector<Field> table = {
      {"add_special_tokens", kAllShapes,
       [](ParsedRow& r, const JsonValue& v, auto f) { r.settings.add_special_tokens = read_boolean(v, f); }},
      {"truncate_prompt_tokens", kAllShapes, set_truncate_prompt_tokens},
      {"truncation_side", kAllShapes, set_truncation_side},
      {"add_generation_prompt", kN | kChat,
       [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).add_generation_prompt = read_boolean(v, f); }},
      {"continue_final_message", kN | kChat,
       [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).continue_final_message = read_boolean(v, f); }},
      {"chat_template", kN | kChat,
       [](ParsedRow& r, const JsonValue& v, auto f) {
         (void)chat(r, f);
         r.chat_template = read_string(v, f);
       }},
      {"chat_template_kwargs", kN | kChat,
       [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).chat_template_kwargs = read_object(v, f); }},
      {"reasoning_effort", kN | kChat,
       [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).reasoning_effort = read_string(v, f); }},
      {"tools", kN | kChat, [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).tools = read_list(v, f); }},
      {"documents", kN | kChat,
       [](ParsedRow& r, const JsonValue& v, auto f) { chat(r, f).documents = read_list(v, f); }},
  };
  return table;
}

}  // namespace tokenmill::rows
