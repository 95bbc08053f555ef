#pragma once
#include <string>
#include <string_view>

namespace tokenmill::jinja {

/// Resolves the escapes of a string literal (the text between its quotes) as Python's "unicode-escape" codec does after
/// jinja2's detour over ASCII. On a bad escape, problem says so.
std::string unescape_literal(std::string_view text, std::string& problem);

}  // namespace tokenmill::jinja
