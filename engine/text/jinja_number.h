#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/text/jinja_value.h"

namespace tokenmill::jinja {

/// int(text, base): white space around, a sign, single underscores between digits, 0x 0o 0b where the base allows it.
/// nullopt where Python raises ValueError; RenderError when the number does not fit into 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
/// float(text); nullopt where Python raises ValueError.
std::optional<double> parse_real(std::string_view text);
/// round(value, precision): to nearest, ties to even on the exact decimal value. An integer stays an integer.
Value round_half_even(const Value& value, int64_t precision);

}  // namespace tokenmill::jinja
