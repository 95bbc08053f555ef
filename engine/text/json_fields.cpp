#include "engine/text/json_fields.h"

#include "kernels/core/error.h"

namespace tokenmill::text {

const io::JsonValue* optional_field(const io::JsonValue& json, std::string_view name, std::string_view where) {
  if (!json.is_object()) throw Error(ErrorKind::kInput, "{}: expected an object, found {}", where, json.kind_name());
  const io::JsonValue* value = json.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const io::JsonValue& required_field(const io::JsonValue& json, std::string_view name, std::string_view where) {
  const io::JsonValue* value = optional_field(json, name, where);
  if (value == nullptr) throw Error(ErrorKind::kInput, "{}: field \"{}\" is missing", where, name);
  return *value;
}

bool bool_field(const io::JsonValue& json, std::string_view name, bool fallback, std::string_view where) {
  const io::JsonValue* value = optional_field(json, name, where);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) {
    throw Error(ErrorKind::kInput, "{}: field \"{}\" must be true or false, found {}", where, name, value->kind_name());
  }
  return value->as_bool();
}

std::string string_field(const io::JsonValue& json, std::string_view name, std::string_view where) {
  const io::JsonValue& value = required_field(json, name, where);
  if (!value.is_string()) {
    throw Error(ErrorKind::kInput, "{}: field \"{}\" must be a string, found {}", where, name, value.kind_name());
  }
  return value.as_string();
}

int64_t integer_value(const io::JsonValue& value, int64_t limit, std::string_view where) {
  if (!value.is_number() || !value.fits_int64() || value.as_int64() < 0 || value.as_int64() >= limit) {
    throw Error(ErrorKind::kInput, "{}: expected an integer from 0 to {}, found {}", where, limit - 1,
                value.is_number() ? value.number_text() : value.kind_name());
  }
  return value.as_int64();
}

const std::vector<io::JsonValue>& array_field(const io::JsonValue& json, std::string_view name,
                                              std::string_view where) {
  const io::JsonValue& value = required_field(json, name, where);
  if (!value.is_array()) {
    throw Error(ErrorKind::kInput, "{}: field \"{}\" must be an array, found {}", where, name, value.kind_name());
  }
  return value.items();
}

std::string type_of(const io::JsonValue& json, std::string_view where) { return string_field(json, "type", where); }

void refuse_type(std::string_view where, std::string_view type, std::string_view supported) {
  throw Error(ErrorKind::kInput, "{}: type \"{}\" is not supported; supported: {}", where, type, supported);
}

void refuse_value(std::string_view where, std::string_view found, std::string_view allowed) {
  throw Error(ErrorKind::kInput, "{} is {}; allowed: {}", where, found, allowed);
}

}  // namespace tokenmill::text
