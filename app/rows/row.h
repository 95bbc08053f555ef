#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"
#include "io/json.h"
#include "jobs/generator.h"

namespace tokenmill::rows {

/// Which format a row came in; its result has the same.
enum class RowShape : uint8_t { kNative, kChatCompletion, kCompletion };

/// Why a row gets an error record. message starts with "file:line: ".
struct RowError {
  std::string code;   ///< invalid_request, invalid_json, record_too_large, internal
  std::string field;  ///< may be empty
  std::string message;
  bool ours = false;  ///< the fault is tokenmill's, not the row's (OpenAI: status 500 instead of 400)
};

/// What the row wants to be completed.
using Prompt = std::variant<std::string, std::vector<int32_t>, text::ChatRequest>;

/// Which end of a prompt is dropped when it is cut.
enum class TruncationSide : uint8_t { kLeft, kRight };

/// What a result holds beyond the members that every result has.
struct AnswerOptions {
  bool return_token_ids = false;
  bool return_prompt_text = false;
  bool return_tokens_as_token_ids = false;  ///< logprobs show "token_id:5" instead of the token's text
  bool flat_logprobs = false;               ///< native rows: one list per property instead of one object per token
  bool echo = false;                        ///< the text begins with the prompt's
};

/// Everything that a row may say besides what it is and what is to be completed; the job's and the model's defaults are
/// the same for all rows.
struct RowSettings {
  SamplingParams sampling;             ///< without what needs the tokenizer:
  std::vector<std::string> bad_words;  ///< not tokenized yet
  std::optional<int64_t> thinking_token_budget;
  std::optional<bool> add_special_tokens;         ///< empty: yes for text, no for chats
  std::optional<int64_t> truncate_prompt_tokens;  ///< -1: what the model's length leaves
  TruncationSide truncation_side = TruncationSide::kLeft;
  std::string cache_salt;
  io::JsonValue chat_template_kwargs;  ///< null, or an object: for chats, below the row's own of the same name
  AnswerOptions answer;
};

/// A record understood, its prompt not yet tokenized.
struct ParsedRow {
  RowShape shape = RowShape::kNative;
  std::string id_json;  ///< the id as JSON text, digit for digit; native rows without one: empty
  Prompt prompt;
  std::string prompt_field;      ///< "prompt", "messages" or "prompt_token_ids"
  std::string chat_template;     ///< the row's own; empty: the job's
  RowSettings settings;          ///< defaults and the row's own fields
  std::string passthrough_json;  ///< object of the fields asked for; empty: none
};

/// A row on its way through the generator: what is computed (request) or why not (error, skipped), and what its result
/// needs.
class RowItem final : public jobs::WorkItem {
 public:
  using WorkItem::WorkItem;
  RowShape shape = RowShape::kNative;
  std::string id_json;  ///< never empty
  std::string digest;   ///< 32 hexadecimal digits of the record's bytes
  std::string place;    ///< "prompts.jsonl:19"
  std::string passthrough_json;
  std::string prompt_field;  ///< which of the row's fields a complaint about its prompt names
  AnswerOptions answer;
  bool logprobs = false, prompt_logprobs = false;  ///< the row asked for them
  int64_t prompt_list_width = 0;                   ///< of prompt_logprob_token_ids; 0: not asked for
  bool echo_logprobs = false;                      ///< a completion's logprobs begin with those of its prompt
  text::DecodeOptions decode;                      ///< how its text is made
  std::string prompt_text;                         ///< for return_prompt_text
  std::string echo_text;                           ///< what the answer's text begins with
  std::vector<int32_t> prompt_token_ids;           ///< for return_token_ids and echo_logprobs
  Request request;                                 ///< request_id is the row number; moved out when it is submitted
  std::optional<RowError> error;                   ///< set: request is not looked at
  std::string skipped;  ///< why the row is not computed although nothing is wrong with it; empty: it is
};

/// Thrown inside parsing only; the codec turns it into the row's error.
struct BadRow {
  std::string code, field, message;
};

}  // namespace tokenmill::rows
