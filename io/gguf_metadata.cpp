// Typed access to GGUF metadata.
#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "io/gguf.h"
#include "io/utf8.h"
#include "kernels/core/error.h"

namespace tokenmill::io {
namespace {

template <typename T>
T load(const std::string& bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

/// The integer at `index`; empty when the type is no integer or the value does not fit int64.
std::optional<int64_t> integer_at(const std::string& bytes, GgufType type, int64_t index) {
  switch (type) {
    case GgufType::kUint8:
      return load<uint8_t>(bytes, index);
    case GgufType::kInt8:
      return load<int8_t>(bytes, index);
    case GgufType::kUint16:
      return load<uint16_t>(bytes, index);
    case GgufType::kInt16:
      return load<int16_t>(bytes, index);
    case GgufType::kUint32:
      return load<uint32_t>(bytes, index);
    case GgufType::kInt32:
      return load<int32_t>(bytes, index);
    case GgufType::kInt64:
      return load<int64_t>(bytes, index);
    case GgufType::kUint64: {
      const auto value = load<uint64_t>(bytes, index);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> number_at(const std::string& bytes, GgufType type, int64_t index) {
  if (type == GgufType::kFloat32) return load<float>(bytes, index);
  if (type == GgufType::kFloat64) return load<double>(bytes, index);
  if (type == GgufType::kUint64) return static_cast<double>(load<uint64_t>(bytes, index));
  if (const auto value = integer_at(bytes, type, index)) return static_cast<double>(*value);
  return std::nullopt;
}

}  // namespace

const char* to_string(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "uint8";
    case GgufType::kInt8:
      return "int8";
    case GgufType::kUint16:
      return "uint16";
    case GgufType::kInt16:
      return "int16";
    case GgufType::kUint32:
      return "uint32";
    case GgufType::kInt32:
      return "int32";
    case GgufType::kFloat32:
      return "float32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kUint64:
      return "uint64";
    case GgufType::kInt64:
      return "int64";
    case GgufType::kFloat64:
      return "float64";
  }
  return "unknown";
}

std::string GgufValue::describe() const {
  const std::string name = to_string(type);
  if (type == GgufType::kArray) return fmt::format("array of {} {}s", count, to_string(element_type));
  if (type == GgufType::kString) return name + " " + excerpt(bytes, 200);
  if (type == GgufType::kBool) return name + (bytes[0] ? " true" : " false");
  if (type == GgufType::kUint64) return fmt::format("{} {}", name, load<uint64_t>(bytes, 0));
  if (type == GgufType::kFloat32) return fmt::format("{} {}", name, load<float>(bytes, 0));
  if (const auto value = integer_at(bytes, type, 0)) return fmt::format("{} {}", name, *value);
  return fmt::format("{} {}", name, load<double>(bytes, 0));
}

GgufMetadata::GgufMetadata(std::string path, std::vector<Entry> entries)
    : path_(std::move(path)), entries_(std::move(entries)) {
  by_key_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i)
    if (!by_key_.emplace(entries_[i].first, i).second)
      throw Error(ErrorKind::kIo, "{}: key {} occurs twice", path_, excerpt(entries_[i].first));
}

const GgufValue* GgufMetadata::find(const std::string& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &entries_[found->second].second;
}

const GgufValue& GgufMetadata::at(const std::string& key) const {
  if (const GgufValue* value = find(key)) return *value;
  throw Error(ErrorKind::kIo, "{}: key {} is missing", path_, key);
}

const GgufValue& GgufMetadata::array_at(const std::string& key, const char* wanted) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::kArray) fail(key, value, wanted);
  return value;
}

void GgufMetadata::fail(const std::string& key, const GgufValue& value, const char* wanted) const {
  throw Error(ErrorKind::kIo, "{}: key {} is {}, must be {}", path_, key,
              value.type == GgufType::kString ? "string" : value.describe(), wanted);
}

uint64_t GgufMetadata::unsigned_integer(const std::string& key) const {
  const GgufValue& value = at(key);
  if (value.type == GgufType::kUint64) return load<uint64_t>(value.bytes, 0);
  const auto integer = integer_at(value.bytes, value.type, 0);
  if (!integer || *integer < 0) fail(key, value, "an unsigned integer");
  return static_cast<uint64_t>(*integer);
}

int64_t GgufMetadata::integer(const std::string& key) const {
  const GgufValue& value = at(key);
  const auto integer = integer_at(value.bytes, value.type, 0);
  if (!integer) fail(key, value, "an integer below 2^63");
  return *integer;
}

double GgufMetadata::number(const std::string& key) const {
  const GgufValue& value = at(key);
  const auto number = number_at(value.bytes, value.type, 0);
  if (!number) fail(key, value, "a number");
  return *number;
}

bool GgufMetadata::boolean(const std::string& key) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::kBool) fail(key, value, "a bool");
  return value.bytes[0] != 0;
}

const std::string& GgufMetadata::string(const std::string& key) const {
  const GgufValue& value = at(key);
  if (value.type != GgufType::kString) fail(key, value, "a string");
  return value.bytes;
}

const std::vector<std::string>& GgufMetadata::strings(const std::string& key) const {
  const GgufValue& value = array_at(key, "an array of strings");
  if (value.element_type != GgufType::kString) fail(key, value, "an array of strings");
  return value.strings;
}

std::vector<int64_t> GgufMetadata::integers(const std::string& key) const {
  const GgufValue& value = array_at(key, "an array of integers");
  std::vector<int64_t> result(static_cast<size_t>(value.count));
  for (int64_t i = 0; i < value.count; ++i) {
    const auto element = integer_at(value.bytes, value.element_type, i);
    if (!element) fail(key, value, "an array of integers below 2^63");
    result[static_cast<size_t>(i)] = *element;
  }
  return result;
}

std::vector<double> GgufMetadata::numbers(const std::string& key) const {
  const GgufValue& value = array_at(key, "an array of numbers");
  std::vector<double> result(static_cast<size_t>(value.count));
  for (int64_t i = 0; i < value.count; ++i) {
    const auto element = number_at(value.bytes, value.element_type, i);
    if (!element) fail(key, value, "an array of numbers");
    result[static_cast<size_t>(i)] = *element;
  }
  return result;
}

std::vector<bool> GgufMetadata::booleans(const std::string& key) const {
  const GgufValue& value = array_at(key, "an array of bools");
  if (value.element_type != GgufType::kBool) fail(key, value, "an array of bools");
  std::vector<bool> result;
  for (const char c : value.bytes) result.push_back(c != 0);
  return result;
}

}  // namespace tokenmill::io
