#include "kernels/core/log.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/captured_log.h"

namespace tokenmill {
namespace {

TEST_CASE("a log line goes above the status line, which stays") {
  log::configure(log::Level::kWarning, "here: ");
  const test::CapturedLog captured;
  log::set_status_line("[##..] 50%");
  log::warning("something {}", 7);
  log::info("not shown");
  log::set_status_line("[###.] 75%");
  log::end_status_line();
  log::end_status_line();
  log::warning("later");
  const std::string text = captured.text();
  const std::string wipe = "\r\033[K";
  CHECK(text.starts_with(wipe + "[##..] 50%" + wipe));
  CHECK(text.find("here: something 7\n[##..] 50%" + wipe + "[###.] 75%\n") != std::string::npos);
  CHECK(text.find("not shown") == std::string::npos);
  CHECK(text.ends_with("here: later\n"));
  CHECK(text.find("\n\n") == std::string::npos);
}

}  // namespace
}  // namespace tokenmill
