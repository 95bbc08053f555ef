#pragma once
#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

/// Logging for everything below app. Lines go to stderr with a timestamp; ranks other than 0 stay silent below
/// warning. spdlog stays behind log.cpp (its headers cost seconds per translation unit). Thread-safe.
namespace tokenmill::log {

enum class Level { kTrace, kDebug, kInfo, kWarning, kError, kOff };

/// Parses trace, debug, info, warning, error, off. Throws Error(kConfig) naming what is allowed.
Level parse_level(std::string_view text);

/// Sets this process's level and the prefix put before each line ("rank 3@node2: " for ranks other than 0).
void configure(Level level, const std::string& prefix);

bool enabled(Level level);
/// A line that stays at the bottom of a terminal, such as a progress bar: shown now, wiped before each log line and shown
/// again behind it.
void set_status_line(const std::string& text);
/// Leaves the status line where it is and ends it, so that other text starts on a line of its own.
void end_status_line();
void write(Level level, std::string_view text);

template <typename... Args>
void trace(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kTrace)) write(Level::kTrace, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kDebug)) write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kInfo)) write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kWarning)) write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::kError)) write(Level::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tokenmill::log
