#pragma once
#include <cstdint>

namespace tokenmill::parallel {

/// Names a process, so that others can tell whether it still runs: a number alone may have been given again. Plain
/// bytes.
struct ProcessId {
  char host[64] = "";
  char boot_id[40] = "";  ///< of the running kernel: hosts may share a name, and one may have been started anew
  int64_t pid = 0;
  uint64_t pid_namespace = 0;  ///< inode: containers on one kernel have numbers of their own
  uint64_t start_ticks = 0;    ///< since boot; 0, as the others: unknown

  /// The calling process. MPI must be initialized.
  static ProcessId self();
  /// It ran on this kernel and in this process namespace, and does not run any more (its zombie does not count). False
  /// where the caller cannot know.
  bool is_gone() const;
  /// The caller can know.
  bool is_near() const;
};

}  // namespace tokenmill::parallel
