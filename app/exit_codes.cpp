#include "app/exit_codes.h"

#include <algorithm>
#include <cstdio>

namespace tokenmill::app {

void print_error(const Error& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::fprintf(stderr, "error[%s] %s\n", to_string(error.kind()), text.c_str());
}

}  // namespace tokenmill::app
