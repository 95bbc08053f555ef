#include "app/text_side.h"

#include <algorithm>

#include "app/row_defaults.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

/// Ids below it have a token: the output layer may be padded beyond the vocabulary, and the vocabulary may be larger.
int64_t num_named_ids(const ModelChoice& choice, const TextSide& text) {
  return std::min<int64_t>(choice.checkpoint->config().vocab_size, text.source.tokenizer.vocab_size());
}

}  // namespace

std::unique_ptr<TextSide> load_text_side(const RunOptions& options, const ModelChoice& choice) {
  auto side = std::make_unique<TextSide>(TextSide{.source = load_tokenizer(options.model)});
  std::string missing =
      "messages are given and the model has no chat template; give prompt, or run with --chat-template";
  try {
    side->chat_template = load_chat_template(side->source, options.chat_template);
  } catch (const Error& error) {
    if (!options.chat_template.empty()) throw;
    missing = side->template_note = error.what();
  }
  side->render_chat = make_chat_renderer(side->chat_template ? &*side->chat_template : nullptr, std::move(missing),
                                         side->source.special_tokens, options.date);
  side->thinking = rows::find_thinking_markers(side->source.tokenizer, options.think_start, options.think_end);
  side->defaults = row_defaults(options, *choice.checkpoint, num_named_ids(choice, *side));
  return side;
}

rows::CodecOptions codec_options(const RunOptions& options, const ModelChoice& choice, const TextSide& text,
                                 std::unordered_map<int64_t, int64_t> repeated_custom_ids) {
  return {.defaults = text.defaults,
          .vocab_size = num_named_ids(choice, text),
          .max_model_len = choice.max_model_len,
          .max_logprobs = options.max_logprobs,
          .overlong = options.overlong,
          .thinking = text.thinking,
          .seed = options.seed,
          .passthrough = options.passthrough,
          .max_record_bytes = options.max_record_bytes,
          .openai = {model_name(options), source_date_epoch()},
          .repeated_custom_ids = std::move(repeated_custom_ids)};
}

}  // namespace tokenmill::app
