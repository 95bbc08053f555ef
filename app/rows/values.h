#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/rows/row.h"

/// Readers of one JSON value each: they give the value in its type or throw BadRow "FIELD is FOUND; it must be ...".
namespace tokenmill::rows {

/// The member of that name, or nullptr when it is absent or null: null means "not given" everywhere.
const io::JsonValue* given(const io::JsonValue& object, std::string_view name);

/// JSON text of a value for messages, cut to 60 bytes at a character.
std::string shown(const io::JsonValue& value);

/// A message "FIELD is NUMBER; ..." with the number as the record writes it (9.0, 1e309, of more than 64 bits), at top
/// level, under sampling or in body; unchanged where the record does not give FIELD as a number.
std::string as_written(std::string message, const io::JsonValue& record);

[[noreturn]] void refuse(std::string_view field, const io::JsonValue& value, std::string_view must);

double read_number(const io::JsonValue& value, std::string_view field);
/// Beyond 64 bits the nearest int64, for the field's own bounds to refuse or, last, check_largest(); as_written shows it.
int64_t read_integer(const io::JsonValue& value, std::string_view field);
bool read_boolean(const io::JsonValue& value, std::string_view field);
const std::string& read_string(const io::JsonValue& value, std::string_view field);
const io::JsonValue& read_object(const io::JsonValue& value, std::string_view field);
const io::JsonValue& read_list(const io::JsonValue& value, std::string_view field);
/// A string, or a list of strings.
std::vector<std::string> read_strings(const io::JsonValue& value, std::string_view field);
/// A list of non-negative int32.
std::vector<int32_t> read_token_ids(const io::JsonValue& value, std::string_view field);
/// -1 (no seed), or a whole number of 64 bits.
std::optional<uint64_t> read_seed(const io::JsonValue& value, std::string_view field);
/// A whole number; true counts as 1 and false as nothing asked for.
std::optional<int64_t> read_logprobs(const io::JsonValue& value, std::string_view field);
/// {"token id": number}, ascending ids.
std::vector<std::pair<int32_t, float>> read_logit_bias(const io::JsonValue& value, std::string_view field);
/// Lists of token ids, one a position; shorter ones are filled up with -1, which may stand in them too.
PromptLogprobIds read_prompt_logprob_ids(const io::JsonValue& value, std::string_view field);
RepetitionDetection read_repetition_detection(const io::JsonValue& value, std::string_view field);

}  // namespace tokenmill::rows
