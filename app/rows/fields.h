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

/// Names of all fields of a shape without those of other programs, for suggestions.
std::vector<std::string> field_names(RowShape shape);

/// The field that `name` must be a misspelling of ("top-k", "maxTokens", "temprature", "seeds"), by the name it has
/// here, or "". Strict, since columns of the user's own may have any name: equal up to case and separators ('-', '_',
/// '.', ' '); for names of several words and for sampling and answer fields also the plural and, from six letters on,
/// one letter off.
std::string misspelt_field(std::string_view name);

/// True for a name that only other programs give a meaning to (max_new_tokens, num_beams): --passthrough may declare it
/// a column.
bool is_foreign_field(std::string_view name);

}  // namespace tokenmill::rows
