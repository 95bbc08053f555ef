#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "io/file.h"

namespace tokenmill::jobs {

/// A file that is there while a run lives, and whose time of change a thread renews. Others judge by whether it changes
/// while they look, never by what clock time it shows. The thread does nothing else, since a file system may let it
/// wait; what it cannot renew it leaves: then others take the run for dead, and that costs the run its journal, not its
/// rows.
class SignOfLife {
 public:
  static constexpr double kBetween_s = 2;

  /// The file exists, and this run made it. Throws Error(kIo).
  explicit SignOfLife(const std::string& path);
  /// Removes the file, unless another one has its name by now.
  ~SignOfLife();
  SignOfLife(const SignOfLife&) = delete;
  SignOfLife& operator=(const SignOfLife&) = delete;

 private:
  void run();
  const io::File file_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tokenmill::jobs
