#include "app/rows/scan.h"

namespace tokenmill::rows {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// The position behind the string that starts at `begin` (a quote), or npos when it is not closed.
/// Most of a record is text: quotes and backslashes are looked for by memchr, which passes over many bytes at once.
size_t string_end(std::string_view text, size_t begin) {
  size_t i = begin + 1;
  size_t quote = text.find('"', i);
  while (quote != text.npos) {
    const size_t escape = text.substr(0, quote).find('\\', i);
    if (escape == text.npos) return quote + 1;
    i = escape + 2;
    if (i > quote) quote = text.find('"', i);  // it was the escaped one
  }
  return text.npos;
}

/// The position behind the value that starts at `begin`, or npos when the text ends inside it.
size_t value_end(std::string_view text, size_t begin) {
  if (text[begin] == '"') return string_end(text, begin);
  if (text[begin] != '{' && text[begin] != '[') {
    size_t i = begin;
    while (i < text.size() && text[i] != ',' && text[i] != '}' && text[i] != ']' && !is_space(text[i])) ++i;
    return i == text.size() ? text.npos : i;
  }
  int64_t depth = 0;
  for (size_t i = begin; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      i = string_end(text, i);
      if (i == text.npos) return text.npos;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++i;
    if (depth == 0) return i;
  }
  return text.npos;
}

}  // namespace

void scan_members(std::string_view record,
                  const std::function<bool(std::string_view key, std::string_view value)>& visit) {
  size_t at = 0;
  const auto skip_space = [&] {
    while (at < record.size() && is_space(record[at])) ++at;
    return at < record.size();
  };
  if (!skip_space() || record[at] != '{') return;
  ++at;
  while (skip_space() && record[at] == '"') {
    const size_t key_end = string_end(record, at);
    if (key_end == record.npos) return;
    const std::string_view key = record.substr(at + 1, key_end - at - 2);
    at = key_end;
    if (!skip_space() || record[at] != ':') return;
    ++at;
    if (!skip_space()) return;
    const size_t end = value_end(record, at);
    if (end == record.npos) visit(key, {});
    if (end == record.npos || end == at) return;
    if (!visit(key, record.substr(at, end - at))) return;
    at = end;
    if (!skip_space() || record[at] != ',') return;
    ++at;
  }
}

std::string_view scan_member(std::string_view record, std::string_view name) {
  std::string_view found;
  scan_members(record, [&](std::string_view key, std::string_view value) {
    if (key == name && !value.empty()) found = value;
    return true;
  });
  return found;
}

std::string_view prompt_bytes(std::string_view record) {
  std::string_view found;
  const auto look = [&](std::string_view key, std::string_view value) {
    if (key != "prompt" && key != "messages" && key != "prompt_token_ids") return true;
    found = value.starts_with('"') ? value.substr(1, value.size() - 2) : value;
    return false;
  };
  scan_members(record, [&](std::string_view key, std::string_view value) {
    if (key == "body") scan_members(value, look);  // one level: a record may nest as deep as it likes
    return found.empty() && look(key, value);
  });
  return found;
}

}  // namespace tokenmill::rows
