#include "app/row_defaults.h"

#include <algorithm>

#include "app/rows/fields.h"
#include "app/rows/prompt.h"
#include "engine/text/chat_messages.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

using io::JsonValue;

/// The file's settings as fields of rows.
JsonValue model_fields(const RunOptions& options, const Checkpoint& checkpoint) {
  std::vector<JsonValue::Member> fields;
  if (!options.use_generation_config) return JsonValue::object();
  const GenerationDefaults& found = checkpoint.generation();
  if (!found.not_supported.empty())
    throw Error(ErrorKind::kConfig,
                "the model's generation_config.json asks for {}, which is not available in this version; "
                "--generation-config none leaves the file out (give --temperature, --top-p and --top-k yourself then)",
                found.not_supported[0]);
  const auto add = [&](const char* name, const auto& value) {
    if (value) fields.emplace_back(name, JsonValue::number(*value));
  };
  add("temperature", found.temperature);
  add("top_p", found.top_p);
  add("min_p", found.min_p);
  add("repetition_penalty", found.repetition_penalty);
  add("top_k", found.top_k);
  add("max_tokens", found.max_tokens);
  add("min_tokens", found.min_tokens);
  return JsonValue::object(std::move(fields));
}

void check_end_ids(const Checkpoint& checkpoint) {
  const int64_t vocab_size = checkpoint.config().vocab_size;
  for (const int32_t id : checkpoint.eos_token_ids())
    if (id < 0 || id >= vocab_size)
      throw Error(ErrorKind::kConfig,
                  "the model's eos_token_id is {}; it must be between 0 and {}, the last id of the vocabulary: correct "
                  "its generation_config.json or config.json",
                  id, vocab_size - 1);
}

[[noreturn]] void refuse_option(const FieldError& wrong) {
  std::string name = wrong.field;
  std::replace(name.begin(), name.end(), '_', '-');
  throw Error(ErrorKind::kConfig, "--{}: {}", name, wrong.message);
}

}  // namespace

rows::RowSettings row_defaults(const RunOptions& options, const Checkpoint& checkpoint, int64_t max_model_len) {
  check_end_ids(checkpoint);
  const int64_t vocab_size = checkpoint.config().vocab_size;
  rows::RowSettings job, both;
  job.sampling.hidden_states = both.sampling.hidden_states = options.hidden_states;
  rows::read_settings(options.sampling, job);
  if (const auto wrong = check(job.sampling, vocab_size, options.max_logprobs)) refuse_option(*wrong);
  if (const auto wrong = rows::check_truncation(job, max_model_len)) refuse_option(*wrong);
  const auto refuse = [](const std::string& message) {
    throw Error(ErrorKind::kConfig,
                "the model's generation_config.json: {}; --generation-config none leaves the file out", message);
  };
  try {
    rows::read_settings(model_fields(options, checkpoint), both);
    rows::read_settings(options.sampling, both);
  } catch (const rows::BadRow& bad) {
    refuse(bad.message);
  }
  if (const auto wrong = check(both.sampling, vocab_size, options.max_logprobs)) refuse(wrong->message);
  both.chat_template_kwargs = options.chat_template_kwargs;
  if (both.chat_template_kwargs.is_object())
    for (const auto& [name, ignored] : both.chat_template_kwargs.members())
      if (text::is_own_field(name))
        throw Error(ErrorKind::kConfig, "--chat-template-kwargs {0} would be ignored: {0} is a field of the rows; give it there",
                    name);
  return both;
}

void check_words(const rows::RowSettings& defaults, const text::Tokenizer& tokenizer, const rows::ThinkingMarkers& thinking,
                 int64_t vocab_size) {
  constexpr int64_t kAnyCount = -1;
  try {
    const SamplingParams words{.bad_words = rows::tokenize_bad_words(tokenizer, defaults.bad_words, vocab_size)};
    if (const auto wrong = check(words, vocab_size, kAnyCount)) refuse_option(*wrong);
    if (defaults.thinking_token_budget) (void)rows::thinking_budget(*defaults.thinking_token_budget, thinking, {});
  } catch (const rows::BadRow& bad) {
    refuse_option({bad.field, bad.message});
  }
}

}  // namespace tokenmill::app
