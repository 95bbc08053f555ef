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

void check_neutral(const NeutralField& field, const JsonValue& value) {
  if (field.neutral(value)) return;
  if (field.instead != nullptr)
    throw BadRow{"invalid_request", field.name,
                 fmt::format("{} is {}; this version's name for it is {}", field.name, shown(value), field.instead)};
  const std::string supported = field.neutral_text == nullptr
                                    ? "no value here: leave it out"
                                    : fmt::format("only {}: give that or leave it out", field.neutral_text);
  throw BadRow{"invalid_request", field.name,
               fmt::format("{} is {}; this version supports {}{}{}", field.name, shown(value), supported,
                           field.advice == nullptr ? "" : "; ", field.advice == nullptr ? "" : field.advice)};
}

/// Checks a member that no honoured field took. False when its name is no field of the shape.
bool pass_neutral(std::string_view name, const JsonValue& value, unsigned shapes) {
  const std::vector<NeutralField>& table = neutral_fields();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const auto& f) { return (f.shapes & shapes) && name == f.name; });
  if (found == table.end()) return false;
  if (!value.is_null()) check_neutral(*found, value);
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
    if (c != '-' && c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
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
    if (field.shapes & bit(shape)) names.emplace_back(field.name);
  return names;
}

std::string misspelt_field(std::string_view name) {
  struct Known {
    std::string name, letters;
  };
  static const std::vector<Known> known = [] {
    constexpr size_t kShortest = 5;  // "n", "seed", "stop", "echo": too many columns look like them
    std::vector<Known> out;
    for (const FieldTable table : {FieldTable(sampling_fields), FieldTable(answer_fields)})
      for (const Field& field : table())
        if ((field.shapes & kN) && std::string_view(field.name).size() >= kShortest)
          out.push_back({field.name, plain_letters(field.name)});
    return out;
  }();
  constexpr size_t kShortestToMistype = 6;  // below, the names are neighbours of each other: top_p, top_k, min_p
  const std::string letters = plain_letters(name);
  for (const Known& field : known)
    if (letters == field.letters ||
        (field.letters.size() >= kShortestToMistype && one_letter_off(letters, field.letters)))
      return field.name;
  return "";
}

}  // namespace tokenmill::rows
