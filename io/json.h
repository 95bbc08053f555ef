#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tokenmill::io {

/// One JSON value. The one place that wraps nlohmann-json (its header stays in json.cpp). Unlike nlohmann's own value
/// it keeps the exact text of numbers, the order of members and U+0000 in strings. Copies are deep; moves are cheap.
class JsonValue {
 public:
  enum class Kind { kNull, kBool, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, JsonValue>;

  JsonValue() = default;  // null
  static JsonValue boolean(bool value);
  static JsonValue number(int64_t value);
  static JsonValue number(double value);
  /// text must be a JSON number; it is written back digit for digit.
  static JsonValue number_text(std::string text);
  static JsonValue string(std::string value);
  static JsonValue array(std::vector<JsonValue> items = {});
  static JsonValue object(std::vector<Member> members = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_number() const { return kind_ == Kind::kNumber; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }
  /// "null", "boolean", "number", "string", "array", "object": for messages.
  const char* kind_name() const;

  /// The accessors below throw Error(kInput) "expected a string, found number" when the kind differs.
  bool as_bool() const;
  const std::string& as_string() const;
  const std::vector<JsonValue>& items() const;
  const std::vector<Member>& members() const;
  std::vector<JsonValue>& items();
  std::vector<Member>& members();
  /// The number's exact text, e.g. "18446744073709551617" or "1e-5".
  const std::string& number_text() const;
  /// True when the number's text is an integer (no '.', 'e') that fits the type.
  bool fits_int64() const;
  bool fits_uint64() const;
  int64_t as_int64() const;    // throws unless fits_int64(); 3.5 and 1e3 are not integers
  uint64_t as_uint64() const;  // throws unless fits_uint64()
  double as_double() const;    // nearest double; +-infinity when out of range

  /// Object member by name, nullptr when absent. Linear up to 8 members, hashed above (until members() is used to
  /// change the object, then linear). Safe to call from several threads at once, like every const method here.
  const JsonValue* find(std::string_view name) const;
  /// Object member by name; throws Error(kInput) naming it when absent.
  const JsonValue& at(std::string_view name) const;
  bool operator==(const JsonValue& other) const;  // numbers by text, objects by members in any order

 private:
  struct Index;              // member name -> position, for objects of more than 8 members
  friend class JsonBuilder;  // json.cpp: receives the parser's events
  /// Drops repeated names (last value wins, first place) and builds the index where it pays.
  void finish_object();
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  std::string text_;  // string or number
  std::vector<JsonValue> items_;
  std::vector<Member> members_;
  std::shared_ptr<const Index> index_;
};

struct JsonLimits {
  int max_depth = 256;                    ///< deeper input is an error: nlohmann's recursion and ours are bounded
  int64_t max_values = int64_t{1} << 22;  ///< more are an error: "[[],[],..." takes 35 times the memory of its text
};

/// Parses one JSON document. A repeated key: the last value wins, at every depth, in the place of the first. Unpaired
/// surrogate escapes, invalid UTF-8, a byte-order mark, NaN/Infinity, trailing text and too deep nesting are errors.
/// Throws Error(kInput) whose text starts with `where` ("file.jsonl:12" or "config.json") and gives the byte position.
JsonValue parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});

/// Reads and parses a whole file, which may begin with a byte-order mark, of at most max_bytes (throws Error(kIo)
/// beyond) and 16 million values (a tokenizer.json holds 2 million).
JsonValue parse_json_file(const std::string& path, int64_t max_bytes = int64_t{1} << 30);

/// Compact text, members in order, numbers digit for digit, valid UTF-8, control characters escaped (U+0000 as \u0000),
/// everything else literal (no \uXXXX for non-ASCII). No newline at the end.
std::string to_json(const JsonValue& value);
/// Appends a JSON string literal (quotes included) to out. Invalid UTF-8 in text becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);
/// Shortest text that reads back as the same double; throws Error(kInternal) for NaN and infinity.
void append_json_number(std::string& out, double value);

}  // namespace tokenmill::io
