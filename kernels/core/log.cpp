#include "kernels/core/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <mutex>

#include "kernels/core/error.h"

namespace tokenmill::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kTrace:
      return spdlog::level::trace;
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = std::make_shared<spdlog::logger>("tokenmill", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    created->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    created->set_level(spdlog::level::warn);
    created->flush_on(spdlog::level::trace);
    return created;
  }();
  return *instance;
}

std::string& prefix() {
  static std::string text;
  return text;
}

/// Guards standard error: log lines and the status line come from several threads.
std::mutex& terminal() {
  static std::mutex mutex;
  return mutex;
}

std::string& status_line() {
  static std::string text;
  return text;
}

constexpr const char* kWipe = "\r\033[K";  // to the line's start, and erase it

}  // namespace

Level parse_level(std::string_view text) {
  if (text == "trace") return Level::kTrace;
  if (text == "debug") return Level::kDebug;
  if (text == "info") return Level::kInfo;
  if (text == "warning") return Level::kWarning;
  if (text == "error") return Level::kError;
  if (text == "off") return Level::kOff;
  throw Error(ErrorKind::kConfig, "log level \"{}\" is unknown; choose trace, debug, info, warning, error or off",
              text);
}

void configure(Level level, const std::string& line_prefix) {
  logger().set_level(to_spdlog(level));
  prefix() = line_prefix;
}

bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }

void write(Level level, std::string_view text) {
  std::lock_guard lock(terminal());
  const std::string& line = status_line();
  if (!line.empty()) std::fputs(kWipe, stderr);
  logger().log(to_spdlog(level), "{}{}", prefix(), text);
  if (!line.empty()) std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

void set_status_line(const std::string& text) {
  std::lock_guard lock(terminal());
  status_line() = text;
  std::fprintf(stderr, "%s%s", kWipe, text.c_str());
  std::fflush(stderr);
}

void end_status_line() {
  std::lock_guard lock(terminal());
  if (!status_line().empty()) std::fputc('\n', stderr);
  status_line().clear();
}

}  // namespace tokenmill::log
