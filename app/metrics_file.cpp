#include "app/metrics_file.h"

#include "app/report_files.h"
#include "io/file.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

namespace tokenmill::app {

MetricsFile::MetricsFile(const std::string& path, const std::string& text) : path_(path) {
  try {
    io::write_file_atomically(path_, text);
  } catch (const Error& error) {
    throw unwritable("--metrics-file", path_, error);
  }
  thread_ = std::thread([this] { run(); });
}

MetricsFile::~MetricsFile() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void MetricsFile::replace(std::string text) {
  {
    std::lock_guard lock(mutex_);
    next_ = std::move(text);
  }
  wake_.notify_one();
}

void MetricsFile::run() {
  bool warned = false;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return next_ || ending_; });
    if (!next_) return;
    const std::string text = *std::exchange(next_, std::nullopt);
    lock.unlock();
    try {
      io::write_file_atomically(path_, text);
    } catch (const Error& error) {
      if (!warned) log::warning("--metrics-file is out of date from here on: {}", error.what());
      warned = true;
    }
    lock.lock();
  }
}

}  // namespace tokenmill::app
