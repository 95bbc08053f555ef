#include "jobs/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "jobs/merge_task.h"
#include "jobs/output_dir.h"
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

/// Whose directories an output holds, in order of their names.
std::vector<Shard> shards_in(const std::string& output) {
  std::vector<Shard> shards;
  std::error_code error;
  for (fs::directory_iterator entry(output, error), end; !error && entry != end; entry.increment(error))
    if (const auto shard = parse(entry->path().filename().string())) shards.push_back(*shard);
  std::sort(shards.begin(), shards.end(), [](Shard a, Shard b) { return name_of(a) < name_of(b); });
  return shards;
}

}  // namespace

RowRange Shard::rows_of(int64_t num_rows) const { return share_of_rows({0, num_rows}, count, index); }

std::string Shard::directory(const std::string& output) const {
  return is_all() ? output : fmt::format("{}/{}", output, name_of(*this));
}

void check_division(Shard shard, const std::string& output) {
  std::vector<Shard> others = shards_in(output);
  std::erase_if(others, [&](Shard other) { return other.count == shard.count; });
  if (!others.empty())
    throw Error(ErrorKind::kConfig,
                "--output {} holds other shards of a job ({}{}), which merge would not put together with {}; choose "
                "another --output, or move them (--restart leaves them there)",
                output, name_of(others[0]), others.size() > 1 ? fmt::format(" and {} more", others.size() - 1) : "",
                shard.is_all() ? "a run of all rows" : fmt::format("one of {}", shard.count));
  std::error_code error;
  if (const std::string journal = OutputDir(output).journal(); !shard.is_all() && fs::exists(journal, error))
    throw Error(ErrorKind::kConfig,
                "--output {} holds a job of all rows ({}), which merge would not put together with a shard; choose "
                "another --output, or move that job (--restart leaves it there)",
                output, journal);
}

std::vector<std::string> shard_directories(const std::string& output) {
  int64_t count = 0;
  for (const Shard& shard : shards_in(output)) {
    if (count != 0 && shard.count != count)
      throw Error(ErrorKind::kConfig, "{} holds shards of {} and of {}; name the directories that belong together",
                  output, count, shard.count);
    count = shard.count;
  }
  std::vector<std::string> directories;
  for (int64_t index = 0; index < count; ++index) directories.push_back(Shard{index, count}.directory(output));
  return directories;
}

}  // namespace tokenmill::jobs
