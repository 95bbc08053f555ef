#include "app/row_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <span>
#include <vector>

#include "engine/row_times.h"

namespace tokenmill::app {
namespace {

void append_seconds(std::string& out, const char* name, std::optional<double> seconds) {
  if (seconds)
    fmt::format_to(std::back_inserter(out), ",\"{}\":{:.6f}", name, *seconds);
  else
    fmt::format_to(std::back_inserter(out), ",\"{}\":null", name);
}

std::string part_path(const std::string& directory, int replica) {
  return fmt::format("{}/journal/row_metrics.{:05d}.jsonl", directory, replica);
}

/// A run that was killed may have left half a line.
io::File open_behind_last_line(const std::string& path) {
  constexpr int64_t kMostBytes = 4096;  // of a line
  io::File file = io::File::open_append(path);
  const int64_t size = file.size(), first = std::max<int64_t>(0, size - kMostBytes);
  std::string end(static_cast<size_t>(size - first), '\0');
  if (size > 0) io::File::open_read(path).read_exactly_at(first, std::as_writable_bytes(std::span(end)));
  file.truncate(first + static_cast<int64_t>(end.rfind('\n') + 1));
  return file;
}

/// In the order of the replicas.
std::vector<std::string> part_paths(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/journal"))
    if (entry.path().filename().string().starts_with("row_metrics.")) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::string row_metrics_line(int64_t row, int rank, const RequestOutput& output) {
  const RowTimes times = row_times(output.timing, output.num_completion_tokens);
  std::string line = fmt::format("{{\"row\":{},\"rank\":{},\"prompt_tokens\":{},\"completion_tokens\":{}", row, rank,
                                 output.num_prompt_tokens, output.num_completion_tokens);
  append_seconds(line, "queue_s", times.queue_s);
  append_seconds(line, "prefill_s", times.prefill_s);
  append_seconds(line, "decode_s", times.decode_s);
  append_seconds(line, "ttft_s", times.ttft_s);
  append_seconds(line, "itl_mean_s", times.itl_mean_s);
  append_seconds(line, "itl_max_s", times.itl_max_s);
  append_seconds(line, "tpot_s", times.tpot_s);
  append_seconds(line, "e2e_s", times.e2e_s);
  fmt::format_to(std::back_inserter(line), ",\"cached_tokens\":{},\"preemptions\":{}}}",
                 output.timing.num_cached_tokens, output.timing.num_preemptions);
  return line;
}

RowMetrics::RowMetrics(const std::string& directory, int replica, int rank)
    : rank_(rank), writer_(open_behind_last_line(part_path(directory, replica))) {}

void RowMetrics::add(int64_t row, const RequestOutput& output) {
  writer_.write(row_metrics_line(row, rank_, output) + "\n");
}

void RowMetrics::merge(const std::string& directory) {
  io::AtomicFile merged(directory + "/row_metrics.jsonl");
  std::string buffer(static_cast<size_t>(io::kReadChunkBytes), '\0');
  for (const std::string& path : part_paths(directory)) {
    io::File part = io::File::open_read(path);
    while (const int64_t bytes = part.read_some(std::as_writable_bytes(std::span(buffer))))
      merged.write(std::string_view(buffer).substr(0, static_cast<size_t>(bytes)));
  }
  merged.commit();
}

}  // namespace tokenmill::app
