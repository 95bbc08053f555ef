#pragma once
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace tokenmill::test {

/// Keeps what is written to standard error, log lines among it, from construction to destruction.
class CapturedLog {
 public:
  CapturedLog() {
    std::fflush(stderr);
    if (file_ == nullptr || saved_ < 0 || ::dup2(::fileno(file_), STDERR_FILENO) < 0)
      throw std::runtime_error("cannot capture standard error");
  }
  ~CapturedLog() {
    std::fflush(stderr);
    ::dup2(saved_, STDERR_FILENO);
    ::close(saved_);
    std::fclose(file_);
  }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  /// So far.
  std::string text() const {
    std::fflush(stderr);
    std::string text;
    char buffer[4096];
    while (true) {
      const ssize_t count = ::pread(::fileno(file_), buffer, sizeof buffer, static_cast<off_t>(text.size()));
      if (count <= 0) return text;
      text.append(buffer, static_cast<size_t>(count));
    }
  }

 private:
  FILE* file_ = std::tmpfile();
  int saved_ = ::dup(STDERR_FILENO);
};

}  // namespace tokenmill::test
