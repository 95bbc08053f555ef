#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "io/json.h"

/// Reading the fields of tokenizer.json with messages that say where. null counts as absent.
namespace tokenmill::text {

/// The member, nullptr when it is absent or null. Throws Error(kInput) when json is no object.
const io::JsonValue* optional_field(const io::JsonValue& json, std::string_view name, std::string_view where);
/// The member; throws Error(kInput) "<where>: <name> is missing".
const io::JsonValue& required_field(const io::JsonValue& json, std::string_view name, std::string_view where);
bool bool_field(const io::JsonValue& json, std::string_view name, bool fallback, std::string_view where);
std::string string_field(const io::JsonValue& json, std::string_view name, std::string_view where);
/// Throws Error(kInput) unless the value is an integer in [0, limit).
int64_t integer_value(const io::JsonValue& value, int64_t limit, std::string_view where);
const std::vector<io::JsonValue>& array_field(const io::JsonValue& json, std::string_view name, std::string_view where);
/// The component's "type".
std::string type_of(const io::JsonValue& json, std::string_view where);
[[noreturn]] void refuse_type(std::string_view where, std::string_view type, std::string_view supported);
/// Throws Error(kInput) "<where> is ..., allowed: ...".
[[noreturn]] void refuse_value(std::string_view where, std::string_view found, std::string_view allowed);

}  // namespace tokenmill::text
