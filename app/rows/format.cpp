#include "app/rows/format.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "io/json.h"

namespace tokenmill::rows {

void append_ids(std::string& out, std::span<const int32_t> ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", ids[i]);
  out += ']';
}

void append_stop_reason(std::string& out, const StopReason& reason) {
  if (const auto* text = std::get_if<std::string>(&reason))
    io::append_json_string(out, *text);
  else if (const auto* id = std::get_if<int32_t>(&reason))
    out += std::to_string(*id);
  else
    out += "null";
}

void append_finite(std::string& out, double value) {
  if (std::isfinite(value))
    io::append_json_number(out, value);
  else
    out += "null";
}

void append_finite(std::string& out, float value) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(out), "{}", value);
  else
    out += "null";
}

}  // namespace tokenmill::rows
