#include "app/rows/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

namespace tokenmill::rows {

using io::JsonValue;

const JsonValue* given(const JsonValue& object, std::string_view name) {
  const JsonValue* value = object.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string shown(const JsonValue& value) {
  std::string text = io::to_json(value);
  if (text.size() <= 60) return text;
  size_t cut = 57;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return text.substr(0, cut) + "...";
}

void refuse(std::string_view field, const JsonValue& value, std::string_view must) {
  throw BadRow{"invalid_request", std::string(field),
               fmt::format("{} is {}; it must be {}", field, shown(value), must)};
}

double read_number(const JsonValue& value, std::string_view field) {
  if (!value.is_number()) refuse(field, value, "a number");
  return value.as_double();
}

int64_t read_integer(const JsonValue& value, std::string_view field) {
  if (value.is_number() && value.fits_int64()) return value.as_int64();
  if (!value.is_number() || value.number_text().find_first_not_of("-0123456789") != std::string_view::npos)
    refuse(field, value, "a whole number");
  using Limits = std::numeric_limits<int64_t>;
  return value.number_text().starts_with('-') ? Limits::min() : Limits::max();
}

std::string as_written(std::string message, const JsonValue& record) {
  constexpr std::string_view kIs = " is ";
  const size_t name_end = message.find(kIs);
  if (name_end == std::string::npos) return message;
  const size_t begin = name_end + kIs.size(), end = message.find_first_of(",;", begin);
  const std::string_view name = std::string_view(message).substr(0, name_end);
  const size_t dot = name.find('.');
  for (const JsonValue* object : {&record, record.find("sampling"), record.find("body")}) {
    if (object == nullptr || !object->is_object()) continue;
    const JsonValue* value = object->find(name.substr(0, dot));
    if (value != nullptr && dot != name.npos) value = value->is_object() ? value->find(name.substr(dot + 1)) : nullptr;
    if (value != nullptr && value->is_number()) return message.replace(begin, end - begin, shown(*value));
  }
  return message;
}

bool read_boolean(const JsonValue& value, std::string_view field) {
  if (!value.is_bool()) refuse(field, value, "true or false");
  return value.as_bool();
}

const std::string& read_string(const JsonValue& value, std::string_view field) {
  if (!value.is_string() || value.as_string().empty()) refuse(field, value, "text of at least one character");
  return value.as_string();
}

const JsonValue& read_object(const JsonValue& value, std::string_view field) {
  if (!value.is_object()) refuse(field, value, "an object");
  return value;
}

const JsonValue& read_list(const JsonValue& value, std::string_view field) {
  if (!value.is_array()) refuse(field, value, "a list");
  return value;
}

std::vector<std::string> read_strings(const JsonValue& value, std::string_view field) {
  if (value.is_string()) return {value.as_string()};
  std::vector<std::string> out;
  if (!value.is_array()) refuse(field, value, "a string or a list of strings");
  for (const JsonValue& item : value.items()) {
    if (!item.is_string()) refuse(field, value, "a string or a list of strings");
    out.push_back(item.as_string());
  }
  return out;
}

std::vector<int32_t> read_token_ids(const JsonValue& value, std::string_view field) {
  if (!value.is_array()) refuse(field, value, "a list of token ids");
  std::vector<int32_t> ids;
  ids.reserve(value.items().size());
  for (const JsonValue& item : value.items()) {
    if (!item.is_number() || !item.fits_int64() || item.as_int64() < 0 ||
        item.as_int64() > std::numeric_limits<int32_t>::max())
      throw BadRow{"invalid_request", std::string(field),
                   fmt::format("{}[{}] is {}; it must be a token id", field, ids.size(), shown(item))};
    ids.push_back(static_cast<int32_t>(item.as_int64()));
  }
  return ids;
}

std::optional<uint64_t> read_seed(const JsonValue& value, std::string_view field) {
  if (value.is_number() && value.fits_uint64()) return value.as_uint64();
  if (value.is_number() && value.number_text() == "-1") return std::nullopt;  // vLLM: no seed
  refuse(field, value, "-1 (none) or a whole number between 0 and 18446744073709551615");
}

std::optional<int64_t> read_logprobs(const JsonValue& value, std::string_view field) {
  if (value.is_bool()) return value.as_bool() ? std::optional<int64_t>(1) : std::nullopt;
  return read_integer(value, field);
}

std::vector<std::pair<int32_t, float>> read_logit_bias(const JsonValue& value, std::string_view field) {
  if (!value.is_object()) refuse(field, value, "an object such as {\"50256\": -100}");
  std::vector<std::pair<int32_t, float>> biases;
  for (const auto& [key, bias] : value.members()) {
    int32_t id = 0;
    const char* end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end)
      throw BadRow{"invalid_request", std::string(field),
                   fmt::format("{} names {}; its keys must be token ids", field, shown(JsonValue::string(key)))};
    if (!bias.is_number())
      throw BadRow{"invalid_request", std::string(field),
                   fmt::format("{} of token {} is {}; it must be a number", field, id, shown(bias))};
    biases.emplace_back(id, static_cast<float>(std::clamp(bias.as_double(), -100.0, 100.0)));
  }
  std::sort(biases.begin(), biases.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (const auto twice = std::adjacent_find(biases.begin(), biases.end(), same); twice != biases.end())
    throw BadRow{"invalid_request", std::string(field), fmt::format("{} names token {} twice", field, twice->first)};
  return biases;
}

PromptLogprobIds read_prompt_logprob_ids(const JsonValue& value, std::string_view field) {
  PromptLogprobIds out;
  if (!value.is_array()) refuse(field, value, "a list of lists of token ids");
  for (const JsonValue& row : value.items()) {
    if (!row.is_array()) refuse(field, value, "a list of lists of token ids");
    out.width = std::max(out.width, static_cast<int64_t>(row.items().size()));
  }
  if (out.width == 0) refuse(field, value, "a list of lists of token ids, with one id at least");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < value.items().size(); ++i) {
    const std::vector<JsonValue>& row = value.items()[i].items();
    for (size_t k = 0; k < row.size(); ++k) {
      if (!row[k].is_number() || !row[k].fits_int64() || row[k].as_int64() < -1 ||
          row[k].as_int64() > std::numeric_limits<int32_t>::max())
        throw BadRow{
            "invalid_request", std::string(field),
            fmt::format("{}[{}][{}] is {}; it must be a token id, or -1 for none", field, i, k, shown(row[k]))};
      ids.push_back(static_cast<int32_t>(row[k].as_int64()));
    }
    ids.resize((i + 1) * static_cast<size_t>(out.width), -1);
  }
  out.ids = std::move(ids);
  return out;
}

RepetitionDetection read_repetition_detection(const JsonValue& value, std::string_view field) {
  if (!value.is_object()) refuse(field, value, "an object of max_pattern_size, min_pattern_size and min_count");
  RepetitionDetection out;
  for (const auto& [name, member] : value.members()) {
    int64_t* target = name == "max_pattern_size"   ? &out.max_pattern_size
                      : name == "min_pattern_size" ? &out.min_pattern_size
                      : name == "min_count"        ? &out.min_count
                                                   : nullptr;
    if (target == nullptr)
      throw BadRow{"invalid_request", std::string(field),
                   fmt::format("{} has {}; its members are max_pattern_size, min_pattern_size and min_count", field,
                               shown(JsonValue::string(name)))};
    if (!member.is_null()) *target = read_integer(member, std::string(field) + "." + name);
  }
  return out;
}

}  // namespace tokenmill::rows
