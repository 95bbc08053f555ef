#include "app/rows/saved_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <span>
#include <vector>

#include "app/rows/format.h"
#include "io/json.h"
#include "kernels/core/error.h"

namespace tokenmill::rows {
namespace {

using io::JsonValue;

void append_positions(std::string& out, std::string_view name, std::span<const PositionLogprobs> positions) {
  if (positions.empty()) return;
  fmt::format_to(std::back_inserter(out), ",\"{}\":[", name);
  for (const PositionLogprobs& position : positions) {
    out += out.back() == '[' ? "[" : ",[";
    for (const TokenLogprob& entry : position)
      fmt::format_to(std::back_inserter(out), "{}{},{},{}", out.back() == '[' ? "" : ",", entry.token_id,
                     std::bit_cast<uint32_t>(entry.logprob), entry.rank);
    out += ']';
  }
  out += ']';
}

/// Their bits.
void append_floats(std::string& out, std::string_view name, std::span<const float> values) {
  if (values.empty()) return;
  fmt::format_to(std::back_inserter(out), ",\"{}\":[", name);
  for (const float value : values)
    fmt::format_to(std::back_inserter(out), "{}{}", out.back() == '[' ? "" : ",", std::bit_cast<uint32_t>(value));
  out += ']';
}

float float_of(const JsonValue& value) { return std::bit_cast<float>(static_cast<uint32_t>(value.as_int64())); }

std::vector<float> floats_in(const JsonValue& object, std::string_view name) {
  std::vector<float> values;
  if (const JsonValue* list = object.find(name))
    for (const JsonValue& bits : list->items()) values.push_back(float_of(bits));
  return values;
}

std::vector<PositionLogprobs> positions_in(const JsonValue& object, std::string_view name) {
  std::vector<PositionLogprobs> positions;
  const JsonValue* list = object.find(name);
  if (list == nullptr) return positions;
  for (const JsonValue& item : list->items()) {
    const std::vector<JsonValue>& numbers = item.items();
    if (numbers.empty() || numbers.size() % 3 != 0)
      throw Error(ErrorKind::kInput, "{} has a position of {} numbers", name, numbers.size());
    PositionLogprobs& position = positions.emplace_back();
    for (size_t i = 0; i < numbers.size(); i += 3)
      position.push_back({static_cast<int32_t>(numbers[i].as_int64()), float_of(numbers[i + 1]),
                          static_cast<int32_t>(numbers[i + 2].as_int64())});
  }
  return positions;
}

SampleProgress sample_in(const JsonValue& object) {
  SampleProgress sample;
  for (const JsonValue& id : object.at("ids").items()) sample.token_ids.push_back(static_cast<int32_t>(id.as_int64()));
  sample.cumulative_logprob = std::bit_cast<double>(object.at("sum").as_uint64());
  sample.logprobs = positions_in(object, "logprobs");
  return sample;
}

bool fits(const SampleProgress& sample, const Request& request, int64_t vocab_size) {
  const size_t num_logprobs = request.sampling.logprobs ? sample.token_ids.size() : 0;
  return sample.logprobs.size() == num_logprobs && std::all_of(sample.token_ids.begin(), sample.token_ids.end(),
                                                               [&](int32_t id) { return id >= 0 && id < vocab_size; });
}

}  // namespace

std::string format_saved(int64_t row, int64_t num_prompt_tokens, const RequestProgress& progress) {
  std::string out = fmt::format("{{\"row\":{},\"prompt_tokens\":{},\"samples\":[", row, num_prompt_tokens);
  for (const SampleProgress& sample : progress.samples) {
    out += out.back() == '[' ? "{\"ids\":" : ",{\"ids\":";
    append_ids(out, sample.token_ids);
    fmt::format_to(std::back_inserter(out), ",\"sum\":{}", std::bit_cast<uint64_t>(sample.cumulative_logprob));
    append_positions(out, "logprobs", sample.logprobs);
    out += '}';
  }
  out += ']';
  append_positions(out, "prompt_logprobs", progress.prompt_logprobs);
  append_floats(out, "prompt_token_id_logprobs", progress.prompt_token_id_logprobs);
  append_floats(out, "hidden_state", progress.hidden_state);
  out += '}';
  return out;
}

std::optional<RequestProgress> parse_saved(std::string_view line, const Request& request, int64_t vocab_size) {
  const JsonValue json = io::parse_json(line, "saved row", {.max_values = int64_t{1} << 28});
  if (json.at("prompt_tokens").as_int64() != static_cast<int64_t>(request.prompt_token_ids.size())) return std::nullopt;
  RequestProgress progress;
  for (const JsonValue& sample : json.at("samples").items()) progress.samples.push_back(sample_in(sample));
  if (static_cast<int64_t>(progress.samples.size()) != request.sampling.n) return std::nullopt;
  for (const SampleProgress& sample : progress.samples)
    if (!fits(sample, request, vocab_size)) return std::nullopt;
  progress.prompt_logprobs = positions_in(json, "prompt_logprobs");
  progress.prompt_token_id_logprobs = floats_in(json, "prompt_token_id_logprobs");
  progress.hidden_state = floats_in(json, "hidden_state");
  if (progress.hidden_state.empty() != (request.sampling.hidden_states == HiddenStates::kNone)) return std::nullopt;
  return progress;
}

}  // namespace tokenmill::rows
