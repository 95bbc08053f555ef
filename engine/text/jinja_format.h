#pragma once
#include <cstdint>
#include <string>

#include "engine/text/jinja_runtime.h"

/// What % formatting and format() have in common.
namespace tokenmill::jinja {

inline constexpr int64_t kMaxWidth = 100000;
inline constexpr int64_t kMaxPrecision = 1000;

/// Reads digits at `at`; 0 when there are none. RenderError beyond kMaxWidth.
int64_t read_width(const std::string& text, size_t& at);

/// `text` filled up to `width` code points; alignment '<', '^' or '>'.
std::string pad(Runtime& runtime, const std::string& text, int64_t width, char alignment, const std::string& fill);
std::string digits_of(uint64_t value, int base, bool upper);
/// |value| without overflow.
uint64_t magnitude(int64_t value);
/// The digits of |value| for conversion e, E, f, F, g or G; `alternate` keeps the point.
std::string float_digits(double value, char type, int64_t precision, bool alternate);

}  // namespace tokenmill::jinja
