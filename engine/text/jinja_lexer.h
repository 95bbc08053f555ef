#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tokenmill::jinja {

enum class TokenKind : uint8_t {
  kData,           ///< text outside of tags, white space control applied
  kVariableBegin,  ///< {{
  kVariableEnd,
  kBlockBegin,  ///< {%
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  ///< text is the operator: "+", "==", "[", ...
  kEnd,       ///< after the last token
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 0;
  std::string text;  ///< names, operators, data; strings with escapes resolved
  int64_t integer = 0;
  double real = 0;
};

/// How a message shows a token: "'endfor'", "end of statement block", "end of template".
std::string describe(const Token& token);

/// Throws Error(kConfig) "NAME:LINE: text".
[[noreturn]] void fail_parse(const std::string& name, int line, const std::string& text);

/// Splits a template into tokens as jinja2 does with trim_blocks and lstrip_blocks: the first newline after a block tag
/// or comment goes, white space between the start of a line and a block tag or comment goes, "-" strips all white space
/// on its side, "+" keeps it. Newlines become "\n"; one newline at the end of the template goes. Throws Error(kConfig).
std::vector<Token> tokenize(std::string_view source, const std::string& name);

}  // namespace tokenmill::jinja
