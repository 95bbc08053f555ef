#pragma once
#include "kernels/core/error.h"

namespace tokenmill::app {

/// Exit codes of every command; never above 125, the same on all ranks.
inline constexpr int kExitDone = 0;         ///< all rows done, errors within --max-row-errors
inline constexpr int kExitInternal = 1;     ///< a fault of tokenmill
inline constexpr int kExitUsage = 2;        ///< usage or configuration
inline constexpr int kExitRowErrors = 3;    ///< finished; more rows have errors than allowed
inline constexpr int kExitDifferent = 3;    ///< diff: the outputs differ
inline constexpr int kExitEnvironment = 4;  ///< device, file system, MPI
inline constexpr int kExitStopped = 75;     ///< run: stopped early; the same command goes on

constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kConfig:
    case ErrorKind::kInput:
      return kExitUsage;
    case ErrorKind::kIo:
    case ErrorKind::kDevice:
    case ErrorKind::kMpi:
      return kExitEnvironment;
    case ErrorKind::kInternal:
      return kExitInternal;
  }
  return kExitInternal;
}

/// One line "error[config] ..." on standard error, whatever line breaks a file or a library put into the text.
void print_error(const Error& error);

}  // namespace tokenmill::app
