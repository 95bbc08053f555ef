#include "app/exit_codes.h"

#include <algorithm>
#include <cstdio>

#include "kernels/core/log.h"

namespace tokenmill::app {

void print_error(const Error& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  log::end_status_line();
  std::fprintf(stderr, "error[%s] %s\n", to_string(error.kind()), text.c_str());
}

}  // namespace tokenmill::app
