#include "engine/text/tokenizer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/text/json_fields.h"
#include "engine/text/tokenizer_json.h"
#include "kernels/core/error.h"

namespace tokenmill::text {
namespace {

using io::JsonValue;

/// "<s>" or {"content": "<s>", ...}.
std::optional<std::string> token_field(const JsonValue& json, std::string_view name, std::string_view where) {
  const JsonValue* value = optional_field(json, name, where);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->as_string();
  if (!value->is_object()) {
    refuse_value(fmt::format("{}: {}", where, name), value->kind_name(), "a string, or an object with \"content\"");
  }
  return string_field(*value, "content", fmt::format("{}: {}", where, name));
}

std::optional<bool> flag_field(const JsonValue& json, std::string_view name, std::string_view where) {
  if (optional_field(json, name, where) == nullptr) return std::nullopt;
  return bool_field(json, name, false, where);
}

std::vector<AddedToken> added_tokens_decoder(const JsonValue& json, std::string_view where) {
  std::vector<AddedToken> out;
  const JsonValue* table = optional_field(json, "added_tokens_decoder", where);
  if (table == nullptr) return out;
  const std::string here = fmt::format("{}: added_tokens_decoder", where);
  if (!table->is_object()) refuse_value(here, table->kind_name(), "an object of id: token");
  for (const auto& [key, fields] : table->members()) {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= Vocabulary::kMaxSize) {
      refuse_value(here + " key", "\"" + key + "\"", fmt::format("an id from 0 to {}", Vocabulary::kMaxSize - 1));
    }
    AddedToken token = parse_added_token_fields(fields, here);
    token.id = id;
    out.push_back(std::move(token));
  }
  std::sort(out.begin(), out.end(), [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return out;
}

std::vector<ChatTemplateSource> chat_templates(const JsonValue& json, std::string_view where) {
  const JsonValue* value = optional_field(json, "chat_template", where);
  if (value == nullptr) return {};
  const std::string here = fmt::format("{}: chat_template", where);
  if (value->is_string()) return {{"default", value->as_string()}};
  if (!value->is_array()) refuse_value(here, value->kind_name(), "a string, or a list of {\"name\", \"template\"}");
  std::vector<ChatTemplateSource> out;
  for (const JsonValue& item : value->items()) {
    out.push_back({string_field(item, "name", here), string_field(item, "template", here)});
  }
  return out;
}

}  // namespace

TokenizerConfig parse_tokenizer_config(const JsonValue& json, std::string_view where) {
  TokenizerConfig out;
  out.bos_token = token_field(json, "bos_token", where);
  out.eos_token = token_field(json, "eos_token", where);
  out.pad_token = token_field(json, "pad_token", where);
  out.unk_token = token_field(json, "unk_token", where);
  out.add_bos_token = flag_field(json, "add_bos_token", where);
  out.add_eos_token = flag_field(json, "add_eos_token", where);
  out.added_tokens = added_tokens_decoder(json, where);
  out.chat_templates = chat_templates(json, where);
  return out;
}

}  // namespace tokenmill::text
