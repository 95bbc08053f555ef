#pragma once
#include <cstdint>
#include <string>

#include "app/rows/row.h"
#include "engine/text/tokenizer.h"

namespace tokenmill::rows {

/// What OpenAI answers carry besides the row's own content.
struct OpenAiContext {
  std::string model;    ///< name of the model that ran
  int64_t created = 0;  ///< seconds; SOURCE_DATE_EPOCH or 0
};

/// True for records in OpenAI's batch format: custom_id beside body, url or method.
bool is_openai(const io::JsonValue& record);

/// Reads an OpenAI batch row for /v1/chat/completions or /v1/completions; other endpoints are refused by name, and so
/// are body members that are no field of the endpoint. row.settings holds the defaults on entry. Throws BadRow;
/// row.shape and row.id_json are set before anything can fail.
void read_openai(const io::JsonValue& record, ParsedRow& row);

/// One line of output.jsonl: id, custom_id, response {status_code, request_id, body}, error (always null: a failed
/// row's error lies in response.body, as OpenAI writes it).
std::string format_openai(const RowItem& item, const RequestOutput& output, const OpenAiContext& context,
                          const text::Tokenizer& tokenizer);
std::string format_openai_error(const RowItem& item, const RowError& error);
/// An empty answer of length, with the reason as body.skipped: readers of OpenAI's shape find a choice to read.
std::string format_openai_skipped(const RowItem& item, const OpenAiContext& context);

}  // namespace tokenmill::rows
