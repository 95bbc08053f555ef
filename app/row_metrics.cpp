#include "app/row_metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace tokenmill::app {
namespace {

void append_seconds(std::string& out, const char* name, double seconds, bool known) {
  if (known)
    fmt::format_to(std::back_inserter(out), ",\"{}\":{:.6f}", name, seconds);
  else
    fmt::format_to(std::back_inserter(out), ",\"{}\":null", name);
}

}  // namespace

std::string RowMetrics::part_path(const std::string& directory, int rank) {
  return fmt::format("{}/journal/row_metrics.{:05d}.jsonl", directory, rank);
}

RowMetrics::RowMetrics(const std::string& directory, int rank)
    : directory_(directory), rank_(rank), writer_(io::File::create(part_path(directory, rank))) {}

void RowMetrics::add(const rows::RowItem& item, const RequestOutput& output) {
  const RequestTiming& t = output.timing;
  const bool started = t.first_scheduled_s > 0;
  const bool answered = t.first_token_s > 0;
  const int64_t tokens = output.num_completion_tokens;
  std::string line = fmt::format("{{\"row\":{},\"rank\":{},\"prompt_tokens\":{},\"completion_tokens\":{}", item.row(),
                                 rank_, output.num_prompt_tokens, tokens);
  append_seconds(line, "queue_s", t.first_scheduled_s - t.submitted_s, started);
  append_seconds(line, "ttft_s", t.first_token_s - t.submitted_s, answered);
  append_seconds(line, "tpot_s", tokens > 1 ? (t.finished_s - t.first_token_s) / static_cast<double>(tokens - 1) : 0,
                 answered && tokens > 1);
  append_seconds(line, "e2e_s", t.finished_s - t.submitted_s, true);
  fmt::format_to(std::back_inserter(line), ",\"cached_tokens\":{},\"preemptions\":{}}}\n", t.num_cached_tokens,
                 t.num_preemptions);
  writer_.write(line);
}

void RowMetrics::finish(const parallel::Comm& world) {
  parallel::agree_on(world, [&] { writer_.close(); });
  parallel::run_on_root(world, [&] {
    io::AtomicFile merged(directory_ + "/row_metrics.jsonl");
    std::string buffer(static_cast<size_t>(io::kReadChunkBytes), '\0');
    for (int rank = 0; rank < world.size(); ++rank) {
      io::File part = io::File::open_read(part_path(directory_, rank));
      while (const int64_t bytes = part.read_some(std::as_writable_bytes(std::span(buffer))))
        merged.write(std::string_view(buffer).substr(0, static_cast<size_t>(bytes)));
    }
    merged.commit();
  });
}

}  // namespace tokenmill::app
