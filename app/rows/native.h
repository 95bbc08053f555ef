#pragma once
#include <string>
#include <vector>

#include "app/rows/row.h"
#include "engine/text/tokenizer.h"

namespace tokenmill::rows {

/// Reads a native row: exactly one of prompt, messages, prompt_token_ids; sampling fields at top level or in an object
/// `sampling` (not both for one field); other members are columns of the user's, kept when `passthrough` names them. A
/// column that looks like a misspelt field is refused unless `passthrough` names it.
/// row.settings holds the defaults on entry. Throws BadRow; row.id_json is set before anything can fail.
void read_native(const io::JsonValue& record, const std::vector<std::string>& passthrough, ParsedRow& row);

/// The id as JSON text; empty when the record has none (absent or null). Throws BadRow unless it is a string or number.
std::string read_id(const io::JsonValue& record);

/// One line of output.jsonl, members in their documented order. output.error is not looked at: errors have their own.
std::string format_native(const RowItem& item, const RequestOutput& output, const text::Tokenizer& tokenizer);
std::string format_native_error(const RowItem& item, const RowError& error);
std::string format_native_skipped(const RowItem& item);

}  // namespace tokenmill::rows
