#include "io/temporaries.h"

#include <signal.h>
#include <sys/types.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <vector>

namespace tokenmill::io {

namespace fs = std::filesystem;

void remove_abandoned_temporaries(const std::string& path) noexcept {
  const std::string prefix = fs::path(path).filename().string() + ".tmp.";
  std::error_code error;
  std::vector<fs::path> abandoned;
  for (fs::directory_iterator entry(fs::path(path).parent_path(), error), last; !error && entry != last;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    pid_t process = 0;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + prefix.size(), end, process);
    if (parsed.ec != std::errc() || parsed.ptr != end || process <= 0) continue;
    if (::kill(process, 0) != 0 && errno == ESRCH) abandoned.push_back(entry->path());
  }
  for (const fs::path& file : abandoned) fs::remove(file, error);
}

}  // namespace tokenmill::io
