#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "engine/text/chat_template.h"
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

/// A record understood, its prompt not yet tokenized.
struct ParsedRow {
  RowShape shape = RowShape::kNative;
  std::string id_json;  ///< the id as JSON text, digit for digit; native rows without one: empty
  Prompt prompt;
  std::string prompt_field;                ///< "prompt", "messages" or "prompt_token_ids"
  std::optional<bool> add_special_tokens;  ///< empty: yes for text, no for chats
  SamplingParams sampling;                 ///< defaults and the row's own fields
  bool has_max_tokens = false;
  bool return_token_ids = false;
  std::string passthrough_json;  ///< object of the fields asked for; empty: none
};

/// A row on its way through the generator: what is computed (request) or why not (error), and what its result needs.
class RowItem final : public jobs::WorkItem {
 public:
  using WorkItem::WorkItem;
  RowShape shape = RowShape::kNative;
  std::string id_json;  ///< never empty
  std::string digest;   ///< 32 hexadecimal digits of the record's bytes
  std::string place;    ///< "prompts.jsonl:19"
  std::string passthrough_json;
  std::string prompt_field;  ///< which of the row's fields a complaint about its prompt names
  bool return_token_ids = false;
  Request request;                ///< request_id is the row number
  std::optional<RowError> error;  ///< set: request is not looked at
};

/// Thrown inside parsing only; the codec turns it into the row's error.
struct BadRow {
  std::string code, field, message;
};

}  // namespace tokenmill::rows
