#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace tokenmill::jobs {

/// Who a journal belongs to: a file of lines of a name and a value.
struct Owner {
  std::string host, pid, started, token;
  int64_t run = 0;    ///< of the job, counted from 0
  int64_t rows = -1;  ///< of the job; -1: not known yet

  /// nullopt: there is none, or it is being written.
  static std::optional<Owner> read(const std::string& journal);
  /// This process.
  static Owner me(const std::string& token, int64_t run, int64_t rows);
  std::string text() const;
};

}  // namespace tokenmill::jobs
