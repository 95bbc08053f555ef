#pragma once
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace tokenmill::test {

/// A command that has run: its exit code (128 + signal when killed), everything it printed, and its wall time.
struct ProcessResult {
  int exit_code = 0;
  std::string output;  ///< stdout and stderr together
  double elapsed_s = 0;

  /// How often text occurs in the output.
  int count(const std::string& text) const {
    int found = 0;
    for (size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + text.size())) ++found;
    return found;
  }
};

/// Runs a shell command with stdin from /dev/null and waits for it.
inline ProcessResult run_process(const std::string& command) {
  const auto start = std::chrono::steady_clock::now();
  FILE* pipe = popen(("{ " + command + "\n} </dev/null 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen: " + command);
  ProcessResult result;
  std::array<char, 4096> buffer{};
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) result.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace tokenmill::test
