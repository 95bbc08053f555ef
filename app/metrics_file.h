#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tokenmill::app {

/// A file whose contents are replaced as a whole, by a thread of its own: a slow file system holds nobody up. When
/// writing fails a warning says so once and the run goes on.
class MetricsFile {
 public:
  /// Writes the first contents at once. Throws Error(kConfig) when that cannot be done.
  MetricsFile(const std::string& path, const std::string& text);
  /// Writes what is still to be written.
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// New contents; older ones that are not written yet are dropped.
  void replace(std::string text);

 private:
  void run();
  const std::string path_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<std::string> next_;  // guarded by mutex_
  bool ending_ = false;              // guarded by mutex_
  std::thread thread_;
};

}  // namespace tokenmill::app
