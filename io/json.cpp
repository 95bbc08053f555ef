// The one file that includes nlohmann-json: its SAX parser delivers events, JsonBuilder turns them into JsonValues.
#include "io/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "io/file.h"
#include "io/utf8.h"
#include "kernels/core/check.h"
#include "kernels/core/error.h"

namespace tokenmill::io {
namespace {

constexpr size_t kLinearMembers = 8;

/// The parser's floating-point type. nlohmann refuses numbers outside double's range; their text is what we keep, so
/// the value it checks is always finite.
struct AnyDouble {
  double parsed = 0;
  AnyDouble() = default;
  AnyDouble(double value) : parsed(value) {}
  operator double&() { return parsed; }    // where strtod stores
  operator double() const { return 0.0; }  // what isfinite sees
};
using Parser = nlohmann::basic_json<std::map, std::vector, std::string, bool, int64_t, uint64_t, AnyDouble>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
bool is_json_number(std::string_view text) {
  const char* p = text.data();
  const char* const end = p + text.size();
  const auto digits = [&] {
    const char* const start = p;
    while (p != end && is_digit(*p)) ++p;
    return p != start;
  };
  if (p != end && *p == '-') ++p;
  if (p != end && *p == '0') {
    ++p;
  } else if (!digits()) {
    return false;
  }
  if (p != end && *p == '.' && (++p, !digits())) return false;
  if (p != end && (*p == 'e' || *p == 'E')) {
    ++p;
    if (p != end && (*p == '+' || *p == '-')) ++p;
    if (!digits()) return false;
  }
  return p == end;
}

template <typename T>
bool integer_from(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

/// Open-addressing table of member positions. It holds no names, so it stays right when the value is copied or moved.
struct JsonValue::Index {
  std::vector<uint32_t> slots;  // position + 1; 0 is free; a power of two of them, at most half full

  explicit Index(size_t members) : slots(std::bit_ceil(members * 2), 0) {}
  size_t slot_of(std::string_view name, const std::vector<Member>& members) const {
    const size_t mask = slots.size() - 1;
    size_t slot = std::hash<std::string_view>{}(name)&mask;
    while (slots[slot] != 0 && members[slots[slot] - 1].first != name) slot = (slot + 1) & mask;
    return slot;
  }
};

void JsonValue::finish_object() {
  index_.reset();
  const size_t count = members_.size();
  TM_ASSERT(count < std::numeric_limits<uint32_t>::max());
  size_t kept = 0;
  const auto keep = [&](size_t i) {
    if (kept != i) members_[kept] = std::move(members_[i]);
    ++kept;
  };
  if (count <= kLinearMembers) {
    for (size_t i = 0; i < count; ++i) {
      size_t first = 0;
      while (first < kept && members_[first].first != members_[i].first) ++first;
      if (first < kept) {
        members_[first].second = std::move(members_[i].second);
      } else {
        keep(i);
      }
    }
  } else {
    auto index = std::make_shared<Index>(count);
    for (size_t i = 0; i < count; ++i) {
      uint32_t& slot = index->slots[index->slot_of(members_[i].first, members_)];
      if (slot != 0) {
        members_[slot - 1].second = std::move(members_[i].second);
      } else {
        keep(i);
        slot = static_cast<uint32_t>(kept);
      }
    }
    index_ = std::move(index);
  }
  members_.erase(members_.begin() + static_cast<std::ptrdiff_t>(kept), members_.end());
}

JsonValue JsonValue::boolean(bool value) {
  JsonValue v;
  v.kind_ = Kind::kBool;
  v.bool_ = value;
  return v;
}

JsonValue JsonValue::number(int64_t value) { return number_text(std::to_string(value)); }

JsonValue JsonValue::number(double value) {
  std::string text;
  append_json_number(text, value);
  return number_text(std::move(text));
}

JsonValue JsonValue::number_text(std::string text) {
  TM_ASSERT(is_json_number(text), "\"{}\" is not a JSON number", text);
  JsonValue v;
  v.kind_ = Kind::kNumber;
  v.text_ = std::move(text);
  return v;
}

JsonValue JsonValue::string(std::string value) {
  JsonValue v;
  v.kind_ = Kind::kString;
  v.text_ = std::move(value);
  return v;
}

JsonValue JsonValue::array(std::vector<JsonValue> items) {
  JsonValue v;
  v.kind_ = Kind::kArray;
  v.items_ = std::move(items);
  return v;
}

JsonValue JsonValue::object(std::vector<Member> members) {
  JsonValue v;
  v.kind_ = Kind::kObject;
  v.members_ = std::move(members);
  v.finish_object();
  return v;
}

namespace {
const char* name_of(JsonValue::Kind kind) {
  switch (kind) {
    case JsonValue::Kind::kNull:
      return "null";
    case JsonValue::Kind::kBool:
      return "boolean";
    case JsonValue::Kind::kNumber:
      return "number";
    case JsonValue::Kind::kString:
      return "string";
    case JsonValue::Kind::kArray:
      return "array";
    case JsonValue::Kind::kObject:
      return "object";
  }
  return "null";
}

void expect(const JsonValue& value, JsonValue::Kind kind) {
  if (value.kind() == kind) return;
  const bool vowel = kind == JsonValue::Kind::kArray || kind == JsonValue::Kind::kObject;
  throw Error(ErrorKind::kInput, "expected {} {}, found {}", vowel ? "an" : "a", name_of(kind), value.kind_name());
}
}  // namespace

const char* JsonValue::kind_name() const { return name_of(kind_); }

bool JsonValue::as_bool() const {
  expect(*this, Kind::kBool);
  return bool_;
}

const std::string& JsonValue::as_string() const {
  expect(*this, Kind::kString);
  return text_;
}

const std::vector<JsonValue>& JsonValue::items() const {
  expect(*this, Kind::kArray);
  return items_;
}

std::vector<JsonValue>& JsonValue::items() {
  expect(*this, Kind::kArray);
  return items_;
}

const std::vector<JsonValue::Member>& JsonValue::members() const {
  expect(*this, Kind::kObject);
  return members_;
}

std::vector<JsonValue::Member>& JsonValue::members() {
  expect(*this, Kind::kObject);
  index_.reset();
  return members_;
}

const std::string& JsonValue::number_text() const {
  expect(*this, Kind::kNumber);
  return text_;
}

bool JsonValue::fits_int64() const {
  int64_t value = 0;
  return kind_ == Kind::kNumber && integer_from(text_, value);
}

bool JsonValue::fits_uint64() const {
  uint64_t value = 0;
  return kind_ == Kind::kNumber && integer_from(text_ == "-0" ? "0" : text_, value);
}

int64_t JsonValue::as_int64() const {
  int64_t value = 0;
  if (!integer_from(number_text(), value))
    throw Error(ErrorKind::kInput, "expected an integer between {} and {}, found {:.40}",
                std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), text_);
  return value;
}

uint64_t JsonValue::as_uint64() const {
  uint64_t value = 0;
  if (!integer_from(number_text() == "-0" ? "0" : text_, value))
    throw Error(ErrorKind::kInput, "expected an integer between 0 and {}, found {:.40}",
                std::numeric_limits<uint64_t>::max(), text_);
  return value;
}

double JsonValue::as_double() const {
  const std::string& text = number_text();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return std::strtod(text.c_str(), nullptr);  // 0, subnormal or infinity
  return value;
}

const JsonValue* JsonValue::find(std::string_view name) const {
  expect(*this, Kind::kObject);
  if (index_) {
    const uint32_t position = index_->slots[index_->slot_of(name, members_)];
    return position == 0 ? nullptr : &members_[position - 1].second;
  }
  for (const Member& member : members_)
    if (member.first == name) return &member.second;
  return nullptr;
}

const JsonValue& JsonValue::at(std::string_view name) const {
  const JsonValue* value = find(name);
  if (!value) throw Error(ErrorKind::kInput, "field \"{}\" is missing", name);
  return *value;
}

bool JsonValue::operator==(const JsonValue& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kNull:
      return true;
    case Kind::kBool:
      return bool_ == other.bool_;
    case Kind::kNumber:
    case Kind::kString:
      return text_ == other.text_;
    case Kind::kArray:
      return items_ == other.items_;
    case Kind::kObject:
      break;
  }
  if (members_.size() != other.members_.size()) return false;
  return std::all_of(members_.begin(), members_.end(), [&](const Member& member) {
    const JsonValue* match = other.find(member.first);
    return match && *match == member.second;
  });
}

/// Builds the value bottom up. `open_` points at the containers not closed yet; only the innermost one grows, so the
/// pointers stay valid.
class JsonBuilder {
 public:
  JsonBuilder(std::string_view where, const JsonLimits& limits) : where_(where), limits_(limits) {}
  JsonValue take() { return std::move(root_); }

  bool null() { return add(JsonValue()); }
  bool boolean(bool value) { return add(JsonValue::boolean(value)); }
  // Integer texts are canonical (no leading zeros or plus), so the value gives them back; a signed zero is "-0".
  bool number_integer(int64_t value) { return add_number(value == 0 ? "-0" : std::to_string(value)); }
  bool number_unsigned(uint64_t value) { return add_number(std::to_string(value)); }
  bool number_float(AnyDouble, const std::string& text) { return add_number(text); }
  bool string(std::string& value) { return add(JsonValue::string(std::move(value))); }
  bool binary(std::vector<uint8_t>&) { return false; }  // never sent by the JSON text parser
  bool start_object(size_t) { return open(JsonValue::Kind::kObject); }
  bool start_array(size_t) { return open(JsonValue::Kind::kArray); }
  bool end_array() {
    open_.pop_back();
    return true;
  }
  bool end_object() {
    open_.back()->finish_object();
    open_.pop_back();
    return true;
  }
  bool key(std::string& name) {
    open_.back()->members_.emplace_back(std::move(name), JsonValue());
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    throw Error(ErrorKind::kInput, "{}: invalid JSON at byte {}: {}", where_, position, reason(error.what()));
  }

 private:
  JsonValue& add_slot() {
    if (++num_values_ > limits_.max_values)
      throw Error(ErrorKind::kInput, "{}: JSON holds more than {} values", where_, limits_.max_values);
    if (open_.empty()) return root_;
    JsonValue& parent = *open_.back();
    if (parent.kind_ == JsonValue::Kind::kObject) return parent.members_.back().second;
    return parent.items_.emplace_back();
  }
  bool add(JsonValue value) {
    add_slot() = std::move(value);
    return true;
  }
  bool add_number(std::string text) {
    JsonValue& slot = add_slot();
    slot.kind_ = JsonValue::Kind::kNumber;
    slot.text_ = std::move(text);
    return true;
  }
  bool open(JsonValue::Kind kind) {
    if (static_cast<int>(open_.size()) >= limits_.max_depth)
      throw Error(ErrorKind::kInput, "{}: JSON is nested deeper than {} levels", where_, limits_.max_depth);
    JsonValue& slot = add_slot();
    slot.kind_ = kind;
    open_.push_back(&slot);
    return true;
  }
  /// "[json.exception...] ... - invalid literal; last read: '<the whole token>'..." up to the token, which may be
  /// megabytes long, invalid UTF-8, or look like the rest of the message.
  static std::string_view reason(std::string_view text) {
    if (const size_t start = text.find("syntax error "); start != text.npos) text.remove_prefix(start + 13);
    return text.substr(0, text.find("; last read: '"));
  }

  std::string_view where_;
  JsonLimits limits_;
  int64_t num_values_ = 0;
  JsonValue root_;
  std::vector<JsonValue*> open_;
};

JsonValue parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  // The parser takes a NUL between tokens for the end of the text and would accept whatever follows.
  if (const size_t nul = text.find('\0'); nul != text.npos)
    throw Error(ErrorKind::kInput, "{}: invalid JSON at byte {}: a NUL byte (write U+0000 as \\u0000)", where, nul + 1);
  // The parser takes a byte-order mark for nothing; it is part of a file's front, and there the reader's.
  if (text.starts_with(kByteOrderMark))
    throw Error(ErrorKind::kInput, "{}: invalid JSON at byte 1: a byte-order mark, which may stand at the front of a file only",
                where);
  JsonBuilder builder(where, limits);
  Parser::sax_parse(text.data(), text.data() + text.size(), &builder, nlohmann::detail::input_format_t::json);
  return builder.take();
}

JsonValue parse_json_file(const std::string& path, int64_t max_bytes) {
  const std::string text = read_file(path, max_bytes);
  return parse_json(std::string_view(text).substr(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0), path,
                    {.max_values = int64_t{1} << 24});
}

}  // namespace tokenmill::io
