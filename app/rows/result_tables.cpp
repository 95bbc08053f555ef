#include "app/rows/result_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "app/rows/score_columns.h"
#include "io/hdf5_writer.h"
#include "io/json.h"
#include "kernels/core/check.h"

namespace tokenmill::rows {
namespace {

using io::JsonValue;
constexpr int64_t kMaxValues = int64_t{1} << 28;  // of a result: scores of a whole vocabulary are many

/// The member, or nullptr when it is missing or null.
const JsonValue* member(const JsonValue& object, std::string_view name) {
  const JsonValue* value = object.is_object() ? object.find(name) : nullptr;
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string text_of(const JsonValue& object, std::string_view name) {
  const JsonValue* value = member(object, name);
  return value == nullptr ? "" : value->as_string();
}

int64_t integer_of(const JsonValue& object, std::string_view name) {
  const JsonValue* value = member(object, name);
  return value == nullptr ? 0 : value->as_int64();
}

/// A column that exists from the first row on that has something for it.
class OptionalTexts {
 public:
  OptionalTexts(io::Hdf5Writer& writer, std::string path, std::string about)
      : writer_(writer), path_(std::move(path)), about_(std::move(about)) {}
  void append(int64_t row, const std::string& text) {
    if (column_ == nullptr && text.empty()) return;
    if (column_ == nullptr) column_ = &writer_.texts(path_, about_);
    while (column_->size() < row) column_->append("");
    column_->append(text);
  }

 private:
  io::Hdf5Writer& writer_;
  const std::string path_, about_;
  io::Hdf5Texts* column_ = nullptr;
};

}  // namespace

struct ResultTables::Columns {
  Columns(const std::string& path, int64_t hidden_columns) : file(path) {
    token_offsets.append(0);
    if (hidden_columns > 0)
      hidden_states = &file.matrix("/hidden_states",
                                   "of the row's prompt: the last layer's output behind the final norm; NaN: the row has none",
                                   hidden_columns);
    hidden_state.resize(static_cast<size_t>(hidden_columns));
  }

  void add_row(int64_t input_row, const JsonValue& result);
  void add_hidden(int64_t row, std::string_view bytes);
  void add_id(const JsonValue* value);
  void add_sample(int64_t row, const JsonValue& output, bool openai);
  void add_stop_reason(const JsonValue& output);
  void commit() { file.commit(); }

  io::Hdf5Writer file;
  io::Hdf5Numbers<int64_t>& input_row =
      file.numbers<int64_t>("/rows/row", "which row of the job's inputs, from 0 over all files");
  io::Hdf5Texts& id = file.texts("/rows/id", "the row's id; numbers digit for digit");
  io::Hdf5Numbers<int8_t>& id_kind = file.numbers<int8_t>("/rows/id_kind", "0: no id, 1: text, 2: number");
  io::Hdf5Numbers<int64_t>& first_sample =
      file.numbers<int64_t>("/rows/first_sample", "entry of /samples at which the row's samples begin");
  io::Hdf5Numbers<int32_t>& num_samples = file.numbers<int32_t>("/rows/num_samples", "entries of /samples");
  io::Hdf5Numbers<int64_t>& prompt_tokens = file.numbers<int64_t>("/rows/prompt_tokens", "tokens; 0 of failed rows");
  io::Hdf5Numbers<int64_t>& completion_tokens =
      file.numbers<int64_t>("/rows/completion_tokens", "tokens generated, of all samples; 0 of failed rows");
  io::Hdf5Words& error_code = file.words("/rows/error_code", "empty: no error");
  io::Hdf5Texts& error_field = file.texts("/rows/error_field", "the field at fault; empty: none");
  io::Hdf5Texts& error_message = file.texts("/rows/error_message", "empty: no error");
  OptionalTexts skipped{file, "/rows/skipped", "why the row was not computed; empty: it was, or has an error"};
  OptionalTexts prompt_text{file, "/rows/prompt_text", "the prompt as the model saw it, where it was asked for"};
  OptionalTexts input{file, "/rows/input", "the row's own columns (--passthrough), a JSON object"};
  std::optional<ScoreColumns> prompt_logprobs;
  io::Hdf5Numbers<int64_t>& row_of = file.numbers<int64_t>("/samples/row", "entry of /rows");
  io::Hdf5Numbers<int32_t>& index = file.numbers<int32_t>("/samples/index", "which of the row's samples");
  io::Hdf5Texts& text = file.texts("/samples/text", "the answer");
  io::Hdf5Words& finish_reason = file.words("/samples/finish_reason", "stop, length or repetition");
  io::Hdf5Texts& stop_reason =
      file.texts("/samples/stop_reason", "the stop text, or the stop token's id in digits; empty: neither");
  io::Hdf5Numbers<int32_t>& stop_token_id = file.numbers<int32_t>("/samples/stop_token_id", "-1: not by a token's id");
  io::Hdf5Numbers<double>& cumulative_logprob =
      file.numbers<double>("/samples/cumulative_logprob", "natural logarithm; NaN: not known");
  io::Hdf5Numbers<int32_t>& token_ids =
      file.numbers<int32_t>("/samples/token_ids/values", "generated tokens of all samples, where they were asked for");
  io::Hdf5Numbers<int64_t>& token_offsets = file.numbers<int64_t>(
      "/samples/token_ids/offsets", "entry of values at which a sample's begin; one more than samples");
  ScoreColumns logprobs{file, "/samples/logprobs", "samples", "generated token"};
  io::Hdf5Matrix* hidden_states = nullptr;
  std::vector<float> hidden_state;  // scratch
};

/// Texts and numbers are different ids.
void ResultTables::Columns::add_id(const JsonValue* value) {
  if (value == nullptr) {
    id.append("");
    id_kind.append(0);
  } else if (value->is_string()) {
    id.append(value->as_string());
    id_kind.append(1);
  } else {
    id.append(value->number_text());
    id_kind.append(2);
  }
}

void ResultTables::Columns::add_row(int64_t input_row, const JsonValue& result) {
  const int64_t row = first_sample.size();  // in the file
  static const JsonValue kNothing = JsonValue::object();
  const JsonValue* response = member(result, "response");
  const bool openai = result.find("custom_id") != nullptr;
  const JsonValue* found = openai ? (response == nullptr ? nullptr : member(*response, "body")) : &result;
  const JsonValue& answer = found == nullptr ? kNothing : *found;
  this->input_row.append(input_row);
  add_id(member(result, openai ? "custom_id" : "id"));
  first_sample.append(row_of.size());
  const JsonValue* error = member(answer, "error");
  const JsonValue* left_out = member(answer, "skipped");
  const bool computed = error == nullptr && left_out == nullptr;
  const JsonValue* outputs = computed ? member(answer, openai ? "choices" : "outputs") : nullptr;
  const JsonValue* usage = member(answer, "usage");
  if (outputs != nullptr)
    for (const JsonValue& output : outputs->items()) add_sample(row, output, openai);
  num_samples.append(outputs == nullptr ? 0 : static_cast<int32_t>(outputs->items().size()));
  prompt_tokens.append(usage == nullptr ? 0 : integer_of(*usage, "prompt_tokens"));
  completion_tokens.append(usage == nullptr ? 0 : integer_of(*usage, "completion_tokens"));
  error_code.append(error == nullptr ? "" : text_of(*error, "code"));
  error_field.append(error == nullptr ? "" : text_of(*error, openai ? "param" : "field"));
  error_message.append(error == nullptr ? "" : text_of(*error, "message"));
  skipped.append(row, left_out == nullptr ? "" : text_of(*left_out, "message"));
  prompt_text.append(row, text_of(answer, "prompt_text"));
  const JsonValue* columns = member(result, "input");
  input.append(row, columns == nullptr ? "" : io::to_json(*columns));
  const JsonValue* scores = member(answer, "prompt_logprobs");
  if (scores == nullptr && outputs != nullptr && openai && !outputs->items().empty())  // completions: in each choice
    scores = member(outputs->items()[0], "prompt_logprobs");
  if (scores != nullptr && !prompt_logprobs) {
    prompt_logprobs.emplace(file, "/rows/prompt_logprobs", "rows", "prompt token");
    for (int64_t before = 0; before < row; ++before) prompt_logprobs->end_entry();
  }
  if (!prompt_logprobs) return;
  if (scores != nullptr) prompt_logprobs->add(*scores, {});
  prompt_logprobs->end_entry();
}

void ResultTables::Columns::add_hidden(int64_t row, std::string_view bytes) {
  if (hidden_states == nullptr) return;
  TM_ASSERT(bytes.empty() || bytes.size() == hidden_state.size() * sizeof(float),
            "row {} has {} bytes of a hidden state of {} numbers", row, bytes.size(), hidden_state.size());
  if (bytes.empty())
    std::fill(hidden_state.begin(), hidden_state.end(), std::numeric_limits<float>::quiet_NaN());
  else
    std::memcpy(hidden_state.data(), bytes.data(), bytes.size());
  hidden_states->append(hidden_state);
}

void ResultTables::Columns::add_sample(int64_t row, const JsonValue& output, bool openai) {
  row_of.append(row);
  index.append(static_cast<int32_t>(integer_of(output, "index")));
  const JsonValue* message = openai ? member(output, "message") : nullptr;
  text.append(message != nullptr ? text_of(*message, "content") : text_of(output, "text"));
  finish_reason.append(text_of(output, "finish_reason"));
  add_stop_reason(output);
  const JsonValue* sum = member(output, "cumulative_logprob");
  cumulative_logprob.append(sum == nullptr ? std::numeric_limits<double>::quiet_NaN() : sum->as_double());
  std::vector<int32_t> ids;
  if (const JsonValue* list = member(output, "token_ids"))
    for (const JsonValue& token : list->items()) ids.push_back(static_cast<int32_t>(token.as_int64()));
  for (const int32_t token : ids) token_ids.append(token);
  token_offsets.append(token_ids.size());
  if (const JsonValue* scores = member(output, "logprobs")) logprobs.add(*scores, ids);
  logprobs.end_entry();
}

void ResultTables::Columns::add_stop_reason(const JsonValue& output) {
  const JsonValue* reason = member(output, "stop_reason");
  const bool by_id = reason != nullptr && reason->is_number();
  stop_token_id.append(by_id ? static_cast<int32_t>(reason->as_int64()) : -1);
  stop_reason.append(reason == nullptr ? "" : by_id ? reason->number_text() : reason->as_string());
}

ResultTables::ResultTables(const std::string& path, const std::vector<std::pair<std::string, std::string>>& attributes,
                           int64_t hidden_columns, bool partial)
    : columns_(std::make_unique<Columns>(path, hidden_columns)) {
  columns_->file.attribute("/", "format", kTablesFormat);
  columns_->file.attribute("/", kPartial, partial ? "true" : "false");
  for (const auto& [name, value] : attributes) columns_->file.attribute("/", name, value);
}

ResultTables::~ResultTables() = default;

void ResultTables::write(int64_t row, std::string_view line, std::string_view attachment) {
  columns_->add_row(row, io::parse_json(line, fmt::format("the result of row {}", row), {.max_values = kMaxValues}));
  columns_->add_hidden(row, attachment);
}

void ResultTables::commit() { columns_->commit(); }

}  // namespace tokenmill::rows
