#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "app/rows/row.h"

namespace tokenmill::rows {

/// Reads every member of `object` that is a field of this shape into row: sampling parameters, prompt options. null
/// counts as "not given" everywhere. A field that this version cannot honour is accepted at its neutral value only.
/// Members that are no field of the shape are returned (native rows carry columns of their own; OpenAI bodies refuse).
/// `skip` names members handled by the caller. Throws BadRow naming the field.
std::vector<std::string_view> read_fields(const io::JsonValue& object, RowShape shape,
                                          const std::vector<std::string_view>& skip, ParsedRow& row);

/// Names of all fields of a shape, for suggestions.
std::vector<std::string> field_names(RowShape shape);

/// Reads a non-negative int32 array.
std::vector<int32_t> read_token_ids(const io::JsonValue& value, std::string_view field);

/// JSON text of a value for messages, cut to 60 bytes at a character.
std::string shown(const io::JsonValue& value);

}  // namespace tokenmill::rows
