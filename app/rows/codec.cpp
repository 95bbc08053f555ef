#include "app/rows/codec.h"

#include <fmt/format.h>

#include <limits>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "app/rows/fields.h"
#include "app/rows/native.h"
#include "app/rows/saved_row.h"
#include "app/rows/scan.h"
#include "app/rows/values.h"
#include "io/record_reader.h"
#include "io/utf8.h"
#include "kernels/core/check.h"
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

/// The record of an HDF5 row was made of its strings, so what is wrong with it is wrong with one of them: throws BadRow
/// when one is not UTF-8.
void check_text(std::string_view record) {
  const size_t bad = io::find_invalid_utf8(record);
  if (bad == record.npos) return;
  const auto found = static_cast<unsigned>(static_cast<unsigned char>(record[bad]));
  scan_members(record, [&](std::string_view key, std::string_view value) {
    const auto begin = static_cast<size_t>(value.data() - record.data()) + 1;  // behind the quote
    if (bad < begin || bad >= begin + value.size()) return true;
    size_t in_string = 0;
    for (size_t i = begin; i < bad; ++in_string) i += record[i] != '\\' ? 1 : record[i + 1] == 'u' ? 6 : 2;
    throw BadRow{"invalid_request", std::string(key),
                 fmt::format("{} is not valid UTF-8 at byte {} of the string (0x{:02x}); write UTF-8 into the file", key,
                             in_string, found)};
  });
}

/// A row without an id has its number.
void complete_id(RowItem& item) {
  if (item.id_json.empty()) item.id_json = item.shape == RowShape::kNative ? std::to_string(item.row()) : "null";
}

/// A completion whose text begins with the prompt shows the prompt's logprobs among those of its tokens.
bool echoes_logprobs(const ParsedRow& row) {
  return row.shape == RowShape::kCompletion && row.settings.answer.echo && row.settings.sampling.logprobs.has_value();
}

/// A number without a bound of its own has that of 64 bits, which read_integer leaves as the largest.
void check_largest(const RowSettings& settings) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  const SamplingParams& p = settings.sampling;
  for (const auto& [field, value] : {std::pair("max_tokens", p.max_tokens.value_or(0)),
                                     std::pair("top_k", p.top_k),
                                     std::pair("logprobs", p.logprobs.value_or(0)),
                                     std::pair("prompt_logprobs", p.prompt_logprobs.value_or(0)),
                                     std::pair("prompt_logprob_start", p.prompt_logprob_ids.start),
                                     std::pair("thinking_token_budget", settings.thinking_token_budget.value_or(0)),
                                     std::pair("repetition_detection.max_pattern_size", p.repetition_detection.max_pattern_size),
                                     std::pair("repetition_detection.min_count", p.repetition_detection.min_count)})
    if (value == kLargest)
      throw BadRow{"invalid_request", field, fmt::format("{} is {}; it must be below {}", field, value, kLargest)};
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
    : tokenizer_(tokenizer), render_chat_(std::move(render_chat)), options_(std::move(options)) {
  TM_ASSERT(options_.max_model_len > 0 && options_.vocab_size > 0);
}

std::unique_ptr<RowItem> Codec::new_item(const jobs::RecordSource& source) const {
  auto item = std::make_unique<RowItem>(source.row);
  item->place = fmt::format("{}:{}", source.file, source.line);
  return item;
}

std::unique_ptr<jobs::WorkItem> Codec::encode(const jobs::RecordSource& source, std::string_view record) const {
  auto item = new_item(source);
  try {
    read(source, record, *item);
  } catch (const BadRow& bad) {
    item->error = RowError{bad.code, bad.field, item->place + ": " + bad.message};
  } catch (const std::bad_alloc&) {  // the machine's fault, not the row's: its result must not depend on it
    throw;
  } catch (const std::exception& error) {  // ours: the row must not take the job down
    item->error = RowError{"internal", "", item->place + ": " + error.what(), true};
  }
  complete_id(*item);
  return item;
}

std::unique_ptr<jobs::WorkItem> Codec::refuse(const jobs::RecordSource& source, std::string_view record,
                                              const std::string& reason) const {
  auto item = new_item(source);
  const std::string_view known = source.oversized_bytes > 0 ? source.oversized_prefix : record;
  item->digest = record_digest(source.oversized_bytes > 0 ? std::string_view(item->place) : record);
  recover_identity(known, *item);
  complete_id(*item);
  item->error = RowError{"internal", "", item->place + ": " + reason, true};
  return item;
}

JsonValue Codec::parse(const jobs::RecordSource& source, std::string_view record, RowItem& item) const {
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
    if (!io::split_record_path(std::string(source.file)).dataset.empty()) check_text(record);
    std::string_view text = error.what();
    if (text.starts_with(item.place + ": ")) text.remove_prefix(item.place.size() + 2);
    throw BadRow{"invalid_json", "", std::string(text)};
  }
  if (!json.is_object())
    throw BadRow{"invalid_request", "", fmt::format("the record is {}; it must be a JSON object", shown(json))};
  return json;
}

void Codec::read(const jobs::RecordSource& source, std::string_view record, RowItem& item) const {
  const JsonValue json = parse(source, record, item);
  ParsedRow row;
  row.settings = options_.defaults;
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
  item.prompt_field = row.prompt_field;
  item.prompt_logprobs = row.settings.sampling.prompt_logprobs.has_value();  // before echo asks for them
  PromptTokens prompt;
  try {
    check_row(row, source);
    prompt = tokenize_prompt(row, tokenizer_, render_chat_);
    check_prompt(row, prompt);
    limit_prompt(row, prompt, item);
  } catch (BadRow& bad) {
    bad.message = as_written(std::move(bad.message), json);
    throw;
  }
  keep_for_answer(row, prompt, item);
  SamplingParams& sampling = row.settings.sampling;
  if (row.settings.thinking_token_budget)
    sampling.thinking_budget = thinking_budget(*row.settings.thinking_token_budget, options_.thinking, prompt.ids);
  item.request.request_id = source.row;
  item.request.prompt_token_ids = std::move(prompt.ids);
  item.request.random_key = random_key_of(row, source.row);
  item.request.cache_salt = std::move(row.settings.cache_salt);
  item.request.sampling = normalized(std::move(sampling));
}

/// Fills in what fields imply for each other, and holds them against the rules.
void Codec::check_row(ParsedRow& row, const jobs::RecordSource& source) const {
  if (const auto repeated = options_.repeated_custom_ids.find(source.row);
      repeated != options_.repeated_custom_ids.end() && row.shape != RowShape::kNative)
    throw BadRow{"invalid_request", "custom_id",
                 fmt::format("custom_id {} is that of row {} too; it must be unique", row.id_json, repeated->second)};
  SamplingParams& sampling = row.settings.sampling;
  AnswerOptions& answer = row.settings.answer;
  if (!sampling.max_tokens && !sampling.trace_decode_token_ids.empty())
    sampling.max_tokens = static_cast<int64_t>(sampling.trace_decode_token_ids.size());
  if (!sampling.max_tokens && !std::holds_alternative<text::ChatRequest>(row.prompt))
    sampling.max_tokens = kDefaultCompletionTokens;
  if (echoes_logprobs(row) && !sampling.prompt_logprobs) sampling.prompt_logprobs = sampling.logprobs;
  if (!sampling.detokenize && answer.echo)
    throw BadRow{
        "invalid_request", "echo",
        "echo is true and detokenize is false, so there is no text for the prompt's to stand before; drop one"};
  if (!sampling.detokenize) answer.return_token_ids = true;  // there is nothing else to return
  sampling.bad_words = tokenize_bad_words(tokenizer_, row.settings.bad_words, options_.vocab_size);
  if (const std::optional<FieldError> wrong = check(sampling, options_.vocab_size, options_.max_logprobs))
    throw BadRow{"invalid_request", wrong->field, wrong->message};
  check_largest(row.settings);
  if (row.settings.thinking_token_budget && !sampling.trace_decode_token_ids.empty())
    throw BadRow{"invalid_request", "trace_decode_token_ids",
                 "trace_decode_token_ids cannot go with thinking_token_budget; drop one"};
}

/// Ids that the row itself gives are the engine's to refuse.
void Codec::check_prompt(const ParsedRow& row, const PromptTokens& prompt) const {
  if (std::holds_alternative<std::vector<int32_t>>(row.prompt)) return;
  const std::string beyond = beyond_vocabulary(tokenizer_, prompt.ids, options_.vocab_size);
  if (!beyond.empty())
    throw BadRow{"invalid_request", row.prompt_field, fmt::format("{}: {}", row.prompt_field, beyond)};
}

/// Cuts the prompt as the row or the job asks, or marks the item as skipped.
void Codec::limit_prompt(const ParsedRow& row, PromptTokens& prompt, RowItem& item) const {
  const RowSettings& settings = row.settings;
  const int64_t to_generate = settings.sampling.max_tokens.value_or(1);
  const int64_t longest = options_.max_model_len - std::clamp<int64_t>(to_generate, 0, options_.max_model_len - 1);
  if (settings.truncate_prompt_tokens) {
    const int64_t asked = *settings.truncate_prompt_tokens;
    if (const std::optional<FieldError> wrong = check_truncation(settings, options_.max_model_len))
      throw BadRow{"invalid_request", wrong->field, wrong->message};
    cut_prompt(prompt, asked == -1 ? longest : asked, settings.truncation_side, row, tokenizer_);
  }
  const int64_t most = options_.max_model_len - std::min<int64_t>(to_generate, 1);
  const auto size = static_cast<int64_t>(prompt.ids.size());
  if (size <= most || options_.overlong == Overlong::kError) return;  // the engine refuses it with its own numbers
  if (options_.overlong == Overlong::kSkip) {
    item.skipped = fmt::format("{}: prompt has {} tokens; at most {} fit in --max-model-len {}", item.place, size, most,
                               options_.max_model_len);
    ++num_skipped_;
    return;
  }
  cut_prompt(prompt, longest,
             options_.overlong == Overlong::kTruncateLeft ? TruncationSide::kLeft : TruncationSide::kRight, row,
             tokenizer_);
  ++num_truncated_;
  if (longest == 1) ++num_cut_to_one_;
}

/// What the result repeats of the row.
void Codec::keep_for_answer(const ParsedRow& row, const PromptTokens& prompt, RowItem& item) const {
  const SamplingParams& sampling = row.settings.sampling;
  item.answer = row.settings.answer;
  item.decode = decode_options(sampling);
  item.prompt_list_width = sampling.prompt_logprob_ids.width;
  item.logprobs = sampling.logprobs.has_value() || !sampling.logprob_token_ids.empty();
  item.echo_logprobs = echoes_logprobs(row);
  if (item.answer.return_token_ids || item.echo_logprobs) item.prompt_token_ids = prompt.ids;
  if (item.answer.echo) item.echo_text = echo_text(row, prompt, tokenizer_);
  if (item.answer.return_prompt_text)
    item.prompt_text = prompt.text.empty() || prompt.cut ? tokenizer_.decode(prompt.ids) : prompt.text;
}

uint64_t Codec::random_key_of(const ParsedRow& row, int64_t number) const {
  if (row.settings.sampling.seed) return hash_parts('s', *row.settings.sampling.seed, "");
  if (!row.id_json.empty()) return hash_parts('i', options_.seed, row.id_json);
  return hash_parts('r', options_.seed, std::to_string(number));
}

void Codec::resume(jobs::WorkItem& item, std::string_view partial) const {
  auto* row = dynamic_cast<RowItem*>(&item);
  TM_ASSERT(row != nullptr, "row {} was not encoded by rows::Codec", item.row());
  if (row->error || !row->skipped.empty()) return;
  if (std::optional<RequestProgress> progress = parse_saved(partial, row->request, options_.vocab_size))
    row->request.progress = std::move(*progress);
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
          item.shape == RowShape::kNative ? format_native(item, output, tokenizer_)
                                          : format_openai(item, output, options_.openai, tokenizer_),
          false};
}

jobs::FinishedRow Codec::format_skipped(const RowItem& item) const {
  return {item.row(),
          item.shape == RowShape::kNative ? format_native_skipped(item) : format_openai_skipped(item, options_.openai),
          false};
}

jobs::FinishedRow Codec::format_error(const RowItem& item, const RowError& error) const {
  return {item.row(),
          item.shape == RowShape::kNative ? format_native_error(item, error) : format_openai_error(item, error), true};
}

}  // namespace tokenmill::rows
