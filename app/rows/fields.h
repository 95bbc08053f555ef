#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "app/rows/row.h"

namespace tokenmill::rows {

/// Reads every member of `object` that is a field of this shape into row: sampling parameters, prompt and answer
/// options. null counts as "not given" everywhere. A field that this version cannot honour is accepted at its neutral
/// value only. Members that are no field of the shape are returned (native rows carry columns of their own; OpenAI
/// bodies refuse). `skip` names members handled by the caller. Throws BadRow naming the field.
std::vector<std::string_view> read_fields(const io::JsonValue& object, RowShape shape,
                                          const std::vector<std::string_view>& skip, ParsedRow& row);

/// The same for defaults of all rows: an object of fields that do not depend on a row's prompt.
void read_settings(const io::JsonValue& object, RowSettings& settings);

/// Names of all fields of a shape, for suggestions.
std::vector<std::string> field_names(RowShape shape);

/// The sampling or answer field that `name` must be a misspelling of ("top-k", "maxTokens", "temprature"), or "".
/// Strict, since columns of the user's own may have any name: equal up to case, '-' and '_', or one letter off in a
/// name of at least six; names of fewer than five characters (n, seed, stop, echo) are never suspected.
std::string misspelt_field(std::string_view name);

}  // namespace tokenmill::rows
