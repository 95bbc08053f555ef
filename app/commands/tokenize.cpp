#include <fmt/format.h>

#include <string>

#include "app/chat.h"
#include "app/commands/commands.h"
#include "app/exit_codes.h"
#include "app/rows/format.h"
#include "app/rows/native.h"
#include "app/rows/values.h"
#include "io/json.h"

namespace tokenmill::app {
namespace {

using io::JsonValue;

/// One line's value as a row: a text, a list of messages, a list of ids, or a row.
rows::ParsedRow read_value(const JsonValue& value) {
  rows::ParsedRow row;
  if (value.is_object()) {
    rows::read_native(value, {}, row);
  } else if (value.is_string()) {
    row.prompt = value.as_string();
  } else if (value.is_array() && !value.items().empty() && value.items()[0].is_number()) {
    row.prompt = rows::read_token_ids(value, "prompt_token_ids");
  } else if (value.is_array()) {
    row.prompt = text::ChatRequest{.messages = value};
  } else {
    throw rows::BadRow{"invalid_request", "",
                       fmt::format("{} is no prompt; give text, a list of messages, or a row", rows::shown(value))};
  }
  return row;
}

std::string answer(const rows::ParsedRow& row, const text::Tokenizer& tokenizer, const rows::ChatRenderer& render_chat,
                   bool add_special_tokens) {
  const rows::PromptTokens prompt = rows::tokenize_prompt(row, tokenizer, render_chat, add_special_tokens);
  std::string out = "{\"ids\":";
  rows::append_ids(out, prompt.ids);
  out += ",\"text\":";
  io::append_json_string(out, tokenizer.decode(prompt.ids));
  out += ",\"prompt\":";
  io::append_json_string(out, prompt.text);
  return out + "}";
}

std::string failure(int64_t line, const std::string& message) {
  std::string out = "{\"error\":";
  io::append_json_string(out, fmt::format("line {}: {}", line, message));
  return out + "}";
}

}  // namespace

int tokenize(RunOptions options, std::istream& in, std::ostream& out) {
  finish_options(options, "tokenize", 1);
  const TokenizerSource source = load_tokenizer(options.model);
  const std::optional<text::ChatTemplate> chat_template = load_chat_template(source, options.chat_template);
  const rows::ChatRenderer render_chat =
      make_chat_renderer(chat_template ? &*chat_template : nullptr,
                         "the model has no chat template; give --chat-template FILE", source.special_tokens,
                         job_date(options));
  std::string text;
  bool failed = false;
  for (int64_t line = 1; std::getline(in, text); ++line) {
    if (text.find_first_not_of(" \t\r") == text.npos) continue;
    try {
      out << answer(read_value(io::parse_json(text, "the value")), source.tokenizer, render_chat,
                    options.add_special_tokens)
          << '\n';
    } catch (const rows::BadRow& bad) {
      out << failure(line, bad.message) << '\n';
      failed = true;
    } catch (const Error& error) {
      out << failure(line, error.what()) << '\n';
      failed = true;
    }
  }
  out.flush();
  if (!out) throw Error(ErrorKind::kIo, "standard output cannot be written");
  return failed ? kExitRowErrors : kExitDone;
}

}  // namespace tokenmill::app
