#pragma once
#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace tokenmill {

/// Whose fault it is; app maps the kind to an exit code (app/main.cpp), nothing below app knows exit codes.
enum class ErrorKind {
  kConfig,    ///< flags, job file, model configuration: the user can mend it (exit 2)
  kInput,     ///< an input file as a whole cannot be used (exit 2); one bad row is data, not an Error
  kIo,        ///< a file could not be read or written, or is damaged (exit 4)
  kDevice,    ///< device, memory, driver (exit 4)
  kMpi,       ///< launcher or a rank (exit 4)
  kInternal,  ///< our own invariant broke (exit 1)
};

/// "config", "input", "io", "device", "mpi", "internal": the word in error[...] lines.
const char* to_string(ErrorKind kind);

/// The one exception type. what() is one sentence: where, what was found, what is allowed, what to do next.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  template <typename... Args>
  Error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args)
    requires(sizeof...(Args) > 0)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace tokenmill
