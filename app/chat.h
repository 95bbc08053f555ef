#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/rows/prompt.h"
#include "engine/models/tokenizer_source.h"
#include "engine/text/chat_template.h"

namespace tokenmill::app {

/// The template that chats of a job are rendered with: `file` when given, else the checkpoint's "default" one, else
/// nothing. Throws Error(kConfig) naming construct and line when it is not understood, Error(kIo) when it cannot be
/// read.
std::optional<text::ChatTemplate> load_chat_template(const TokenizerSource& source, const std::string& file);

/// The renderer for rows: job_template (may be nullptr, outlives it) for chats without a template of their own; missing
/// is what those get as their error when it is nullptr. date (YYYY-MM-DD) is what strftime_now shows. Templates of rows
/// are parsed once for as long as they are in use.
rows::ChatRenderer make_chat_renderer(const text::ChatTemplate* job_template, std::string missing,
                                      std::vector<std::pair<std::string, std::string>> special_tokens,
                                      const std::string& date);

}  // namespace tokenmill::app
