#include "app/option_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>

#include "kernels/core/check.h"
#include "kernels/core/error.h"

namespace tokenmill::app {
namespace {

[[noreturn]] void refuse(const Setting& setting, const std::string& must) {
  throw Error(ErrorKind::kConfig, "{} is {}; it must be {}", setting.where, setting.values.at(0), must);
}

const std::string& only_value(const Setting& setting) {
  TM_ASSERT(setting.values.size() == 1, "{} has {} values", setting.where, setting.values.size());
  return setting.values[0];
}

bool plain_decimal(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

template <typename T>
bool parse_whole(std::string_view text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

std::string range_text(int64_t low, int64_t high) {
  if (high == std::numeric_limits<int64_t>::max()) return fmt::format("a whole number of at least {}", low);
  return fmt::format("a whole number between {} and {}", low, high);
}

}  // namespace

int64_t read_integer(const Setting& setting, int64_t low, int64_t high) {
  const std::string& text = only_value(setting);
  int64_t value = 0;
  if (!plain_decimal(text)) refuse(setting, range_text(low, high));
  if (!parse_whole(text, value))  // too many digits: both ends matter
    refuse(setting, fmt::format("a whole number between {} and {}", low, high));
  if (value < low || value > high) refuse(setting, range_text(low, high));
  return value;
}

uint64_t read_seed(const Setting& setting) {
  const std::string& text = only_value(setting);
  uint64_t value = 0;
  if (text == "-1") return 0;
  if (!plain_decimal(text) || !parse_whole(text, value))
    refuse(setting, fmt::format("-1 (none) or a whole number between 0 and {}", std::numeric_limits<uint64_t>::max()));
  return value;
}

double read_number(const Setting& setting, double low, double high) {
  double value = 0;
  if (!parse_whole(only_value(setting), value) || !std::isfinite(value) || value < low || value > high)
    refuse(setting, fmt::format("a number between {} and {}", low, high));
  return value;
}

double read_number(const Setting& setting) {
  double value = 0;
  if (!parse_whole(only_value(setting), value) || !std::isfinite(value)) refuse(setting, "a number");
  return value;
}

bool read_bool(const Setting& setting) {
  const std::string& text = only_value(setting);
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  refuse(setting, "true or false");
}

int64_t read_bytes(const Setting& setting, int64_t low) {
  const std::string_view text = only_value(setting);
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string unit(text.substr(digits));
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  double value = 0;
  const std::vector<std::string> units = {"", "K", "M", "G", "T"};
  if (unit.size() > 1 && unit.ends_with("B")) unit.pop_back();
  if (unit.size() == 2 && unit.ends_with("I")) unit.pop_back();
  if (unit == "B") unit.clear();
  const auto found = std::find(units.begin(), units.end(), unit);
  const bool ok = found != units.end() && parse_whole(text.substr(0, digits), value);
  const double bytes = ok ? value * std::pow(1024.0, static_cast<double>(found - units.begin())) : -1;
  if (!ok || bytes < static_cast<double>(low) || bytes > 9e18)
    refuse(setting, fmt::format("a size in bytes of at least {}, e.g. 4096, 512M or 1.5G", low));
  return static_cast<int64_t>(bytes);
}

std::string read_word(const Setting& setting, const std::vector<std::string>& allowed) {
  const std::string& text = only_value(setting);
  if (std::find(allowed.begin(), allowed.end(), text) == allowed.end())
    refuse(setting, fmt::format("one of {}", fmt::join(allowed, ", ")));
  return text;
}

const std::string& read_text(const Setting& setting) {
  const std::string& text = only_value(setting);
  if (text.empty()) throw Error(ErrorKind::kConfig, "{} is empty; it needs a value", setting.where);
  return text;
}

void check_named_once(const Setting& setting, const std::vector<io::JsonValue::Member>& members) {
  std::set<std::string_view> seen;
  for (const auto& [name, value] : members)
    if (!seen.insert(name).second)
      throw Error(ErrorKind::kConfig, "{} names {} twice; keep one", setting.where, name);
}

io::JsonValue read_variables(const Setting& setting) {
  std::vector<io::JsonValue::Member> members;
  for (const std::string& item : setting.values) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ErrorKind::kConfig, "{} holds {}; its items are NAME=VALUE", setting.where, item);
    const std::string text = item.substr(equals + 1);
    io::JsonValue value;
    try {
      value = io::parse_json(text, setting.where);
    } catch (const Error&) {
      value = io::JsonValue::string(text);
    }
    members.emplace_back(item.substr(0, equals), std::move(value));
  }
  check_named_once(setting, members);
  return io::JsonValue::object(std::move(members));
}

std::string closest(std::string_view word, const std::vector<std::string>& words) {
  std::string best;
  size_t best_distance = word.size() / 3 + 1;  // a third of the letters may be wrong
  for (const std::string& candidate : words) {
    std::vector<size_t> row(candidate.size() + 1);  // Levenshtein distance, one row at a time
    for (size_t j = 0; j <= candidate.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t substituted = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace tokenmill::app
