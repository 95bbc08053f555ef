#include "app/text_side.h"

#include "app/row_defaults.h"
#include "kernels/core/error.h"

namespace tokenmill::app {

std::unique_ptr<TextSide> load_text_side(const RunOptions& options, const ModelChoice& choice) {
  auto side = std::make_unique<TextSide>(TextSide{.source = load_tokenizer(options.model_path())});
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
  side->defaults = row_defaults(options, *choice.checkpoint, choice.max_model_len);
  check_words(side->defaults, side->source.tokenizer, side->thinking, choice.checkpoint->config().vocab_size);
  return side;
}

rows::CodecOptions codec_options(const RunOptions& options, const ModelChoice& choice, const TextSide& text,
                                 std::unordered_map<int64_t, int64_t> repeated_custom_ids) {
  return {.defaults = text.defaults,
          .vocab_size = choice.checkpoint->config().vocab_size,
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
