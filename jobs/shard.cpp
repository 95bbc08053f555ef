#include "jobs/shard.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "jobs/merge_task.h"
#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

namespace fs = std::filesystem;

std::string name_of(Shard shard) { return fmt::format("shard-{:05d}-of-{:05d}", shard.index, shard.count); }

std::optional<Shard> parse(const std::string& name) {
  constexpr std::string_view kFront = "shard-", kMiddle = "-of-";
  const size_t middle = name.find(kMiddle);
  if (!name.starts_with(kFront) || middle == name.npos) return std::nullopt;
  Shard shard;
  std::from_chars(name.data() + kFront.size(), name.data() + middle, shard.index);
  std::from_chars(name.data() + middle + kMiddle.size(), name.data() + name.size(), shard.count);
  if (shard.count < 2 || name != name_of(shard)) return std::nullopt;
  return shard;
}

}  // namespace

RowRange Shard::rows_of(int64_t num_rows) const { return share_of_rows({0, num_rows}, count, index); }

std::string Shard::directory(const std::string& output) const {
  return is_all() ? output : fmt::format("{}/{}", output, name_of(*this));
}

std::vector<std::string> shard_directories(const std::string& output) {
  int64_t count = 0;
  std::error_code error;
  for (fs::directory_iterator entry(output, error), end; !error && entry != end; entry.increment(error)) {
    const auto shard = parse(entry->path().filename().string());
    if (!shard) continue;
    if (count != 0 && shard->count != count)
      throw Error(ErrorKind::kConfig, "{} holds shards of {} and of {}; name the directories that belong together",
                  output, count, shard->count);
    count = shard->count;
  }
  std::vector<std::string> directories;
  for (int64_t index = 0; index < count; ++index) directories.push_back(Shard{index, count}.directory(output));
  return directories;
}

}  // namespace tokenmill::jobs
