#pragma once
#include <string>

namespace tokenmill::io {

/// While it lives, the calling thread is inside the HDF5 library with this file. The library follows what a damaged file
/// says into any memory (seen: the heap index of a variable-length string); the crash then ends the process at once with
/// one line that names the file and exit code 4, as any unreadable file does. Guards may nest.
class Hdf5Guard {
 public:
  explicit Hdf5Guard(const std::string& where);
  ~Hdf5Guard();
  Hdf5Guard(const Hdf5Guard&) = delete;
  Hdf5Guard& operator=(const Hdf5Guard&) = delete;

 private:
  const char* const outer_;
};

/// For handlers of fatal signals, before they do anything else: ends the process where the calling thread is inside such
/// a guard. Async-signal-safe.
void end_if_in_hdf5();

}  // namespace tokenmill::io
