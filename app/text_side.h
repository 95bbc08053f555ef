#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "app/chat.h"
#include "app/model_choice.h"
#include "app/options.h"
#include "app/rows/codec.h"
#include "app/rows/prompt.h"
#include "app/rows/row.h"
#include "app/rows/words.h"
#include "engine/models/tokenizer_source.h"
#include "engine/text/chat_template.h"

namespace tokenmill::app {

/// What turns rows into token ids and back: leaders need it, the ranks that follow do not.
struct TextSide {
  TokenizerSource source;
  std::optional<text::ChatTemplate> chat_template;
  rows::ChatRenderer render_chat;  ///< refers to chat_template
  rows::ThinkingMarkers thinking;
  rows::RowSettings defaults;  ///< of rows that do not say
  std::string template_note;   ///< why no chat can be rendered although the model has a template; empty otherwise
};

/// Tokenizer and chat template of options.model, or the template the options name, and the rows' defaults. A template
/// of the model's own that is not understood is a note: plain prompts run all the same, and each chat row gets it as
/// its error. Throws Error.
std::unique_ptr<TextSide> load_text_side(const RunOptions& options, const ModelChoice& choice);

/// text outlives a codec made with them. repeated_custom_ids: rows::CodecOptions.
rows::CodecOptions codec_options(const RunOptions& options, const ModelChoice& choice, const TextSide& text,
                                 std::unordered_map<int64_t, int64_t> repeated_custom_ids);

}  // namespace tokenmill::app
