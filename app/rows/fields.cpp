#include "app/rows/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "app/rows/field_table.h"
#include "app/rows/values.h"

namespace tokenmill::rows {
namespace {

using io::JsonValue;
using FieldTable = const std::vector<Field>& (*)();
constexpr std::array<FieldTable, 3> kHonoured = {sampling_fields, prompt_fields, answer_fields};

unsigned bit(RowShape shape) {
  return shape == RowShape::kNative ? kN : shape == RowShape::kChatCompletion ? kChat : kText;
}

void check_neutral(const NeutralField& field, const JsonValue& value, unsigned shapes) {
  if (field.neutral(value)) return;
  const std::string column = field.foreign && (shapes & kN)
                                 ? fmt::format("; if it is a column of yours, name it by --passthrough {}", field.name)
                                 : "";
  if (field.instead != nullptr)
    throw BadRow{"invalid_request", field.name,
                 fmt::format("{} is {}; this version's name for it is {}{}", field.name, shown(value), field.instead,
                             column)};
  const std::string supported = field.neutral_text == nullptr
                                    ? "no value here: leave it out"
                                    : fmt::format("only {}: give that or leave it out", field.neutral_text);
  throw BadRow{"invalid_request", field.name,
               fmt::format("{} is {}; this version supports {}{}{}{}", field.name, shown(value), supported,
                           field.advice == nullptr ? "" : "; ", field.advice == nullptr ? "" : field.advice, column)};
}

/// Checks a member that no honoured field took. False when its name is no field of the shape.
bool pass_neutral(std::string_view name, const JsonValue& value, unsigned shapes) {
  const std::vector<NeutralField>& table = neutral_fields();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& f) { return (f.shapes & shapes) && name == f.name; });
  if (found == table.end()) return false;
  if (!value.is_null()) check_neutral(*found, value, shapes);
  return true;
}

bool is_honoured(std::string_view name, unsigned shapes) {
  return std::any_of(kHonoured.begin(), kHonoured.end(), [&](FieldTable table) {
    return std::any_of(table().begin(), table().end(),
                       [&](const Field& field) { return (field.shapes & shapes) && name == field.name; });
  });
}

std::string plain_letters(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (c != '-' && c != '_' && c != '.' && c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// One letter too many, too few, another, or two neighbours swapped.
bool one_letter_off(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > 1) return false;
  size_t i = 0;
  while (i < a.size() && a[i] == b[i]) ++i;
  if (b.size() > a.size()) return a.substr(i) == b.substr(i + 1);
  if (i == a.size() || a.substr(i + 1) == b.substr(i + 1)) return true;
  return i + 1 < a.size() && a[i] == b[i + 1] && a[i + 1] == b[i] && a.substr(i + 2) == b.substr(i + 2);
}

/// A name that a column may be a misspelling of.
struct KnownName {
  std::string letters, meant;
  bool suspected_near;  ///< not only by case and separators
};

std::vector<KnownName> known_names() {
  std::vector<KnownName> known;
  const auto add = [&](std::string_view name, std::string_view meant, bool of_answer) {
    // Of other tables, single words are left alone: "document" and "tool" are columns.
    known.push_back({plain_letters(name), std::string(meant), of_answer || name.find('_') != name.npos});
  };
  for (const FieldTable table : kHonoured)
    for (const Field& field : table())
      if (field.shapes & kN) add(field.name, field.name, table != FieldTable(prompt_fields));
  for (const NeutralField& field : neutral_fields())
    if (field.shapes & kN) add(field.name, field.instead == nullptr ? field.name : field.instead, false);
  return known;
}

}  // namespace

std::vector<std::string_view> read_fields(const JsonValue& object, RowShape shape,
                                          const std::vector<std::string_view>& skip, ParsedRow& row) {
  const unsigned wanted = bit(shape);
  const auto skipped = [&](std::string_view name) { return std::find(skip.begin(), skip.end(), name) != skip.end(); };
  for (const FieldTable table : kHonoured)
    for (const Field& field : table()) {  // in the table's order: what a record says does not depend on its own order
      if ((field.shapes & wanted) == 0 || skipped(field.name)) continue;
      if (const JsonValue* value = given(object, field.name)) field.read(row, *value, field.name);
    }
  std::vector<std::string_view> unknown;
  for (const auto& [name, value] : object.members())
    if (!skipped(name) && !is_honoured(name, wanted) && !pass_neutral(name, value, wanted)) unknown.push_back(name);
  return unknown;
}

void read_settings(const JsonValue& object, RowSettings& settings) {
  ParsedRow row;
  row.settings = std::move(settings);
  row.prompt_field = "none";
  const std::vector<std::string_view> unknown = read_fields(object, RowShape::kNative, {}, row);
  if (!unknown.empty())
    throw BadRow{"invalid_request", std::string(unknown[0]), fmt::format("{} is not a field of rows", unknown[0])};
  settings = std::move(row.settings);
}

std::vector<std::string> field_names(RowShape shape) {
  std::vector<std::string> names;
  for (const FieldTable table : kHonoured)
    for (const Field& field : table())
      if (field.shapes & bit(shape)) names.emplace_back(field.name);
  for (const NeutralField& field : neutral_fields())
    if ((field.shapes & bit(shape)) && !field.foreign) names.emplace_back(field.name);
  return names;
}

std::string misspelt_field(std::string_view name) {
  static const std::vector<KnownName> known = known_names();
  constexpr size_t kShortestPlural = 4;     // "ns" may be anything
  constexpr size_t kShortestToMistype = 6;  // below, the names are neighbours of each other: top_p, top_k, min_p
  const std::string letters = plain_letters(name);
  for (const KnownName& field : known)
    if (letters == field.letters) return field.meant;
  for (const KnownName& field : known)
    if (field.suspected_near && ((field.letters.size() >= kShortestPlural && letters == field.letters + 's') ||
                                 (field.letters.size() >= kShortestToMistype && one_letter_off(letters, field.letters))))
      return field.meant;
  return "";
}

bool is_foreign_field(std::string_view name) {
  const std::vector<NeutralField>& table = neutral_fields();
  return std::any_of(table.begin(), table.end(), [&](const NeutralField& f) { return f.foreign && name == f.name; });
}

}  // namespace tokenmill::rows
