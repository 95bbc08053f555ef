#include "app/rows/native.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "app/option_values.h"
#include "app/rows/fields.h"
#include "app/rows/format.h"
#include "app/rows/logprobs.h"
#include "app/rows/values.h"

namespace tokenmill::rows {
namespace {

using io::JsonValue;
constexpr std::array<std::string_view, 3> kPrompts = {"prompt", "messages", "prompt_token_ids"};

void read_prompt(const JsonValue& record, ParsedRow& row) {
  const JsonValue* found = nullptr;
  for (const std::string_view name : kPrompts) {
    const JsonValue* value = given(record, name);
    if (value == nullptr) continue;
    if (found != nullptr)
      throw BadRow{"invalid_request", std::string(name),
                   fmt::format("{} and {} are both given; a row has one of prompt, messages, prompt_token_ids",
                               row.prompt_field, name)};
    found = value;
    row.prompt_field = name;
  }
  if (found == nullptr)
    throw BadRow{"invalid_request", "prompt",
                 "field \"prompt\" is missing (give prompt, messages or prompt_token_ids)"};
  if (row.prompt_field == "messages") {
    row.prompt = text::ChatRequest{.messages = *found};
  } else if (row.prompt_field == "prompt_token_ids") {
    row.prompt = read_token_ids(*found, row.prompt_field);
  } else if (found->is_string()) {
    row.prompt = found->as_string();
  } else {
    throw BadRow{"invalid_request", "prompt", fmt::format("prompt is {}; it must be text", shown(*found))};
  }
}

/// What says who a row is and what is to be completed does not stand under "sampling".
void check_is_sampling(const JsonValue& sampling) {
  for (const auto& [name, ignored] : sampling.members())
    if (name == "id" || name == "sampling" || std::find(kPrompts.begin(), kPrompts.end(), name) != kPrompts.end())
      throw BadRow{"invalid_request", name,
                   fmt::format("{} stands under sampling; it belongs to the row itself, beside sampling", name)};
}

/// Fields inside "sampling": the same as at top level, each in one place only.
void read_sampling_object(const JsonValue& record, const JsonValue& sampling, ParsedRow& row) {
  for (const auto& [name, value] : sampling.members())
    if (!value.is_null() && given(record, name) != nullptr)
      throw BadRow{"invalid_request", name, fmt::format("{} is given at top level and under sampling; keep one", name)};
  const std::vector<std::string_view> unknown = read_fields(sampling, RowShape::kNative, {}, row);
  if (unknown.empty()) return;
  const std::string near = app::closest(unknown[0], field_names(RowShape::kNative));
  throw BadRow{"invalid_request", std::string(unknown[0]),
               fmt::format("sampling.{} is not a sampling field{}", unknown[0],
                           near.empty() ? "" : fmt::format("; did you mean {}?", near))};
}

/// max_tokens and its newer name may both be given, anywhere in the row, when they agree.
void check_token_limits(const JsonValue& record, const JsonValue* sampling) {
  const auto find = [&](std::string_view name) {
    const JsonValue* value = given(record, name);
    return value == nullptr && sampling != nullptr ? given(*sampling, name) : value;
  };
  const JsonValue* limit = find("max_tokens");
  const JsonValue* newer = find("max_completion_tokens");
  if (limit == nullptr || newer == nullptr || io::to_json(*limit) == io::to_json(*newer)) return;
  throw BadRow{"invalid_request", "max_completion_tokens",
               fmt::format("max_completion_tokens is {} and max_tokens is {}; they mean the same: keep one",
                           shown(*newer), shown(*limit))};
}

std::string kept_members(const JsonValue& record, const std::vector<std::string>& passthrough) {
  if (passthrough.empty()) return "";
  std::vector<JsonValue::Member> kept;
  for (const std::string& name : passthrough)
    if (const JsonValue* value = record.find(name)) kept.emplace_back(name, *value);
  return io::to_json(JsonValue::object(std::move(kept)));
}

std::string beginning(const RowItem& item) {
  return fmt::format("{{\"id\":{},\"row\":{},\"outputs\":[", item.id_json, item.row());
}

/// Lists of width numbers; null where a row listed no id.
void append_rows(std::string& out, const std::vector<float>& values, int64_t width) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    const bool begins = i % static_cast<size_t>(width) == 0;
    if (begins) out += i > 0 ? "],[" : "[";
    if (!begins) out += ',';
    append_finite(out, values[i]);
  }
  out += values.empty() ? "]" : "]]";
}

void finish(std::string& out, const RowItem& item) {
  if (!item.passthrough_json.empty()) out += ",\"input\":" + item.passthrough_json;
  out += '}';
}

}  // namespace

std::string read_id(const JsonValue& record) {
  const JsonValue* id = given(record, "id");
  if (id == nullptr) return "";
  if (!id->is_string() && !id->is_number())
    throw BadRow{"invalid_request", "id", fmt::format("id is {}; it must be a string or a number", shown(*id))};
  return io::to_json(*id);
}

void read_native(const JsonValue& record, const std::vector<std::string>& passthrough, ParsedRow& row) {
  row.shape = RowShape::kNative;
  row.passthrough_json = kept_members(record, passthrough);
  row.id_json = read_id(record);
  const JsonValue* sampling = given(record, "sampling");
  if (sampling != nullptr && !sampling->is_object())
    throw BadRow{
        "invalid_request", "sampling",
        fmt::format("sampling is {}; it must be an object", sampling->is_array() ? "a list" : shown(*sampling))};
  if (sampling != nullptr) check_is_sampling(*sampling);
  read_prompt(record, row);
  check_token_limits(record, sampling);
  if (sampling != nullptr) read_sampling_object(record, *sampling, row);
  std::vector<std::string_view> handled = {"id", "sampling"};
  handled.insert(handled.end(), kPrompts.begin(), kPrompts.end());
  std::copy_if(passthrough.begin(), passthrough.end(), std::back_inserter(handled), is_foreign_field);
  for (const std::string_view column : read_fields(record, RowShape::kNative, handled, row)) {
    if (std::find(passthrough.begin(), passthrough.end(), column) != passthrough.end()) continue;
    if (const std::string meant = misspelt_field(column); !meant.empty())
      throw BadRow{"invalid_request", std::string(column),
                   fmt::format("{} is not a field of rows; did you mean {}? (--passthrough {} if it is a column of "
                               "yours)",
                               column, meant, column)};
  }
}

std::string format_native(const RowItem& item, const RequestOutput& output, const text::Tokenizer& tokenizer) {
  const LogprobWriter writer(tokenizer, item.answer.return_tokens_as_token_ids);
  const auto append_logprobs = [&](std::string& out, LogprobWriter::Positions positions, bool after_first) {
    if (item.answer.flat_logprobs)
      writer.append_flat(out, positions, after_first);
    else
      writer.append_native(out, positions, after_first);
  };
  std::string out = beginning(item);
  for (const SequenceOutput& sequence : output.outputs) {
    fmt::format_to(std::back_inserter(out), "{}{{\"index\":{},\"text\":", &sequence == &output.outputs[0] ? "" : ",",
                   sequence.index);
    io::append_json_string(out, item.echo_text + sequence.text);
    if (item.answer.return_token_ids) {
      out += ",\"token_ids\":";
      append_ids(out, sequence.token_ids);
    }
    fmt::format_to(std::back_inserter(out),
                   ",\"finish_reason\":\"{}\",\"stop_reason\":", to_string(sequence.finish_reason));
    append_stop_reason(out, sequence.stop_reason);
    out += ",\"cumulative_logprob\":";
    append_finite(out, sequence.cumulative_logprob);
    if (item.logprobs) {
      out += ",\"logprobs\":";
      append_logprobs(out, sequence.logprobs, false);
    }
    out += '}';
  }
  fmt::format_to(std::back_inserter(out),
                 "],\"usage\":{{\"prompt_tokens\":{},\"completion_tokens\":{}}},\"error\":null",
                 output.num_prompt_tokens, output.num_completion_tokens);
  if (item.prompt_logprobs) {
    out += ",\"prompt_logprobs\":";
    append_logprobs(out, output.prompt_logprobs, true);
  }
  if (item.prompt_list_width > 0) {
    out += ",\"prompt_token_id_logprobs\":";
    append_rows(out, output.prompt_token_id_logprobs, item.prompt_list_width);
  }
  if (item.answer.return_prompt_text) {
    out += ",\"prompt_text\":";
    io::append_json_string(out, item.prompt_text);
  }
  finish(out, item);
  return out;
}

std::string format_native_skipped(const RowItem& item) {
  std::string out = beginning(item) + "],\"usage\":null,\"error\":null,\"skipped\":{\"field\":";
  io::append_json_string(out, item.prompt_field);
  out += ",\"message\":";
  io::append_json_string(out, item.skipped);
  out += '}';
  finish(out, item);
  return out;
}

std::string format_native_error(const RowItem& item, const RowError& error) {
  std::string out = beginning(item) + "],\"usage\":null,\"error\":{\"code\":";
  io::append_json_string(out, error.code);
  out += ",\"field\":";
  if (error.field.empty())
    out += "null";
  else
    io::append_json_string(out, error.field);
  out += ",\"message\":";
  io::append_json_string(out, error.message);
  out += '}';
  finish(out, item);
  return out;
}

}  // namespace tokenmill::rows
