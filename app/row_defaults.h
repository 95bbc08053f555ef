#pragma once
#include <cstdint>

#include "app/options.h"
#include "app/rows/row.h"
#include "app/rows/words.h"
#include "engine/models/checkpoint.h"

namespace tokenmill::app {

/// What rows take over unless they say otherwise: the job's options over the model's generation_config.json over vLLM's
/// defaults. It must be valid, since it would be an error in every row: throws Error(kConfig) naming the option or the
/// file, also for a setting of the file that cannot be honoured.
rows::RowSettings row_defaults(const RunOptions& options, const Checkpoint& checkpoint, int64_t max_model_len);

/// The rest of their rules, those that need the tokenizer: of bad words and of a thinking budget.
void check_words(const rows::RowSettings& defaults, const text::Tokenizer& tokenizer, const rows::ThinkingMarkers& thinking,
                 int64_t vocab_size);

}  // namespace tokenmill::app
