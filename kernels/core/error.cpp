#include "kernels/core/error.h"

#include "kernels/core/check.h"
#include "kernels/core/source_place.h"

namespace tokenmill {

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kConfig: return "config";
    case ErrorKind::kInput: return "input";
    case ErrorKind::kIo: return "io";
    case ErrorKind::kDevice: return "device";
    case ErrorKind::kMpi: return "mpi";
    case ErrorKind::kInternal: return "internal";
  }
  return "internal";
}

namespace detail {
void assertion_failed(const char* expression, const char* file, int line, const std::string& text) {
  throw Error(ErrorKind::kInternal, "{}:{}: {} does not hold{}{}; this is a bug in tokenmill, please report it",
              source_path(file), line, expression, text.empty() ? "" : ": ", text);
}
}  // namespace detail

}  // namespace tokenmill
