#include "app/rows/codec.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "app/rows/native.h"
#include "app/rows/scan.h"
#include "kernels/core/error.h"

namespace tokenmill::rows {
namespace {

using io::JsonValue;
constexpr int64_t kDefaultCompletionTokens = 16;  // plain prompts and OpenAI completions, as in vLLM

/// The id of a record that could not be parsed or was not read whole, as far as a scan finds one: the error row keeps
/// it.
void recover_identity(std::string_view record, RowItem& item) {
  std::string_view id, custom_id;
  bool batch = false;
  scan_members(record, [&](std::string_view key, std::string_view value) {
    if (key == "id") id = value;
    if (key == "custom_id") custom_id = value;
    batch = batch || key == "body" || key == "url" || key == "method";
    return true;
  });
  const bool openai = batch && !custom_id.empty();
  if (openai) id = custom_id;
  if (openai) item.shape = RowShape::kChatCompletion;
  try {
    const JsonValue value = io::parse_json(id, "id");
    if (value.is_string() || (!openai && value.is_number())) item.id_json = io::to_json(value);
  } catch (const Error&) {  // the damage lies in the id itself: the row's number stands in
  }
}

/// A row with a seed of its own: equal rows give equal answers. Otherwise the job's seed and who the row is.
uint64_t hash_parts(char kind, uint64_t seed, std::string_view identity) {
  std::string bytes(1, kind);
  bytes.append(reinterpret_cast<const char*>(&seed), sizeof seed);
  bytes += identity;
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

/// JSON values of one row: a prompt of a million token ids has room, a line made to fill the memory has not.
constexpr int64_t kMaxValues = int64_t{1} << 21;

std::string record_digest(std::string_view record) {
  const XXH128_hash_t hash = XXH3_128bits(record.data(), record.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

Codec::Codec(const text::Tokenizer& tokenizer, ChatRenderer render_chat, CodecOptions options)
    : tokenizer_(tokenizer), render_chat_(std::move(render_chat)), options_(std::move(options)) {}

std::unique_ptr<jobs::WorkItem> Codec::encode(const jobs::RecordSource& source, std::string_view record) const {
  auto item = std::make_unique<RowItem>(source.row);
  item->place = fmt::format("{}:{}", source.file, source.line);
  try {
    read(source, record, *item);
  } catch (const BadRow& bad) {
    item->error = RowError{bad.code, bad.field, item->place + ": " + bad.message};
  } catch (const std::bad_alloc&) {  // the machine's fault, not the row's: its result must not depend on it
    throw;
  } catch (const std::exception& error) {  // ours: the row must not take the job down
    item->error = RowError{"internal", "", item->place + ": " + error.what(), true};
  }
  if (item->id_json.empty()) item->id_json = item->shape == RowShape::kNative ? std::to_string(source.row) : "null";
  return item;
}

void Codec::read(const jobs::RecordSource& source, std::string_view record, RowItem& item) const {
  if (source.oversized_bytes > 0) {
    item.digest = record_digest(item.place);
    recover_identity(source.oversized_prefix, item);
    throw BadRow{"record_too_large", "",
                 fmt::format("the record has {} bytes; --max-record-bytes is {}", source.oversized_bytes,
                             options_.max_record_bytes)};
  }
  item.digest = record_digest(record);
  JsonValue json;
  try {
    json = io::parse_json(record, item.place, {.max_values = kMaxValues});
  } catch (const Error& error) {
    recover_identity(record, item);
    std::string_view text = error.what();
    if (text.starts_with(item.place + ": ")) text.remove_prefix(item.place.size() + 2);
    throw BadRow{"invalid_json", "", std::string(text)};
  }
  if (!json.is_object())
    throw BadRow{"invalid_request", "", fmt::format("the record is {}; it must be a JSON object", json.kind_name())};

  ParsedRow row;
  apply(options_.defaults, row.sampling);
  row.has_max_tokens = options_.defaults.max_tokens.has_value();
  const auto take_over = [&] {  // what an error row needs too
    item.shape = row.shape;
    item.id_json = row.id_json;
    item.passthrough_json = row.passthrough_json;
  };
  try {
    if (is_openai(json))
      read_openai(json, row);
    else
      read_native(json, options_.passthrough, row);
  } catch (...) {
    take_over();
    throw;
  }
  take_over();
  if (const auto repeated = options_.repeated_custom_ids.find(source.row);
      repeated != options_.repeated_custom_ids.end() && row.shape != RowShape::kNative)
    throw BadRow{"invalid_request", "custom_id",
                 fmt::format("custom_id {} is that of row {} too; it must be unique", row.id_json, repeated->second)};
  if (const std::optional<FieldError> wrong = check(row.sampling, options_.vocab_size))
    throw BadRow{"invalid_request", wrong->field, wrong->message};
  const bool chat = std::holds_alternative<text::ChatRequest>(row.prompt);
  if (!row.has_max_tokens && !chat) row.sampling.max_tokens = kDefaultCompletionTokens;
  item.return_token_ids = row.return_token_ids;
  item.prompt_field = row.prompt_field;
  item.request.request_id = source.row;
  item.request.prompt_token_ids = tokens_of(row);
  item.request.random_key = random_key_of(row, source.row);
  item.request.sampling = normalized(std::move(row.sampling));
}

std::vector<int32_t> Codec::tokens_of(const ParsedRow& row) const {
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&row.prompt)) return *ids;
  try {
    if (const auto* text = std::get_if<std::string>(&row.prompt))
      return tokenizer_.encode(*text, {.add_special_tokens = row.add_special_tokens.value_or(true)});
    if (!render_chat_)
      throw BadRow{"invalid_request", "messages",
                   "messages are given and the model has no chat template; give prompt, or run with --chat-template"};
    // The template writes the start token itself: none is added in front of it.
    return tokenizer_.encode(render_chat_(std::get<text::ChatRequest>(row.prompt)),
                             {.add_special_tokens = row.add_special_tokens.value_or(false)});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    throw BadRow{"invalid_request", row.prompt_field, error.what()};
  }
}

uint64_t Codec::random_key_of(const ParsedRow& row, int64_t number) const {
  if (row.sampling.seed) return hash_parts('s', *row.sampling.seed, "");
  if (!row.id_json.empty()) return hash_parts('i', options_.seed, row.id_json);
  return hash_parts('r', options_.seed, std::to_string(number));
}

jobs::FinishedRow Codec::format(const RowItem& item, const RequestOutput& output) const {
  if (item.error) return format_error(item, *item.error);
  if (output.error) {
    RowError error{output.error->code, output.error->field, item.place + ": " + output.error->message,
                   output.error->code == "internal"};
    if (error.field == "prompt" || error.field == "prompt_token_ids") error.field = item.prompt_field;
    return format_error(item, error);
  }
  return {item.row(),
          item.shape == RowShape::kNative ? format_native(item, output) : format_openai(item, output, options_.openai),
          false};
}

jobs::FinishedRow Codec::format_error(const RowItem& item, const RowError& error) const {
  return {item.row(),
          item.shape == RowShape::kNative ? format_native_error(item, error) : format_openai_error(item, error), true};
}

}  // namespace tokenmill::rows
