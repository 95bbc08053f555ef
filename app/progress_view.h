#pragma once
#include <string>

#include "jobs/progress.h"

namespace tokenmill::app {

/// One line about a job's progress: "1200/5000 rows (24%), 3 failed | prompt 1,204 tok/s, generation 322 tok/s | 64
/// running, 128 waiting | KV 41% | ETA 0:02:31".
std::string progress_line(const jobs::JobProgress& progress);
/// The same behind a bar, cut to `columns`: for a terminal, where it replaces itself.
std::string progress_bar(const jobs::JobProgress& progress, int columns);
/// "0:02:31", "1:00:00", "3 d 01:00:00".
std::string format_duration(double seconds);
/// "1,234,567"
std::string format_count(int64_t count);

/// Shows progress on standard error: a bar when it is a terminal, else a log line each time. Thread: the caller's.
class ProgressView {
 public:
  ProgressView();
  void show(const jobs::JobProgress& progress);
  /// Ends the bar's line, so that other text starts on its own.
  void finish();

 private:
  bool terminal_;
};

}  // namespace tokenmill::app
