#pragma once
#include <optional>
#include <string>

#include "app/rows/codec.h"
#include "engine/models/tokenizer_source.h"
#include "engine/text/chat_template.h"

namespace tokenmill::app {

/// The template that chats of a job are rendered with: `file` when given, else the checkpoint's "default" one, else
/// nothing. Throws Error(kConfig) naming construct and line when it is not understood, Error(kIo) when it cannot be
/// read.
std::optional<text::ChatTemplate> load_chat_template(const TokenizerSource& source, const std::string& file);

/// The renderer for rows::Codec: date (YYYY-MM-DD) is what strftime_now shows. chat_template outlives it.
rows::ChatRenderer make_chat_renderer(const text::ChatTemplate& chat_template, const std::string& date);

}  // namespace tokenmill::app
