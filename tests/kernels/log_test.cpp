#include "kernels/core/log.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

namespace tokenmill {
namespace {

/// What function writes to standard error.
std::string captured(const std::function<void()>& function) {
  std::fflush(stderr);
  FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  const int saved = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  function();
  std::fflush(stderr);
  ::dup2(saved, STDERR_FILENO);
  ::close(saved);
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  REQUIRE(std::fread(text.data(), 1, text.size(), file) == text.size());
  std::fclose(file);
  return text;
}

TEST_CASE("a log line goes above the status line, which stays") {
  log::configure(log::Level::kWarning, "here: ");
  const std::string text = captured([] {
    log::set_status_line("[##..] 50%");
    log::warning("something {}", 7);
    log::info("not shown");
    log::set_status_line("[###.] 75%");
    log::end_status_line();
    log::end_status_line();
    log::warning("later");
  });
  const std::string wipe = "\r\033[K";
  CHECK(text.starts_with(wipe + "[##..] 50%" + wipe));
  CHECK(text.find("here: something 7\n[##..] 50%" + wipe + "[###.] 75%\n") != std::string::npos);
  CHECK(text.find("not shown") == std::string::npos);
  CHECK(text.ends_with("here: later\n"));
  CHECK(text.find("\n\n") == std::string::npos);
}

}  // namespace
}  // namespace tokenmill
