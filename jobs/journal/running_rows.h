#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/file.h"

namespace tokenmill::jobs {

class OutputDir;

/// The rows that a replica computes now, in a file of the journal (jobs/README.md, "Suspects"): it can still be read
/// when the replica's processes are dead. Never synced, for it need not survive more. One thread.
class RunningRows {
 public:
  /// The file is made with the first row; an earlier one of that name is an error.
  explicit RunningRows(std::string path) : path_(std::move(path)) {}
  /// Throws Error(kIo).
  void begin(int64_t row);
  /// Of a row that began or not.
  void end(int64_t row);
  /// Removes the file: nobody died.
  void remove();

 private:
  void write(int64_t slot, int64_t value);
  const std::string path_;
  io::File file_;
  std::unordered_map<int64_t, int64_t> slots_;  // by row
  std::vector<int64_t> free_;                   // slots
};

/// Deaths of a job's processes by their own fault while a row was being computed.
struct Deaths {
  int64_t count = 0;
  std::string cause;  ///< of the last one, for people
};

/// By row, from what the runs of the journal left in running/. Throws Error(kIo).
std::map<int64_t, Deaths> read_deaths(const OutputDir& directory);
/// For the run that owns the journal, before it computes rows: removes what runs left that did not die by their own
/// fault.
void remove_idle_running(const OutputDir& directory);

}  // namespace tokenmill::jobs
