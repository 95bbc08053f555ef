#include "app/progress_view.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/core/log.h"

namespace tokenmill::app {
namespace {

const char* phase_name(jobs::JobPhase phase) {
  switch (phase) {
    case jobs::JobPhase::kIndexing:
      return "counting rows";
    case jobs::JobPhase::kRunning:
      return "running";
    case jobs::JobPhase::kMerging:
      return "merging parts";
  }
  return "";
}

double share_done(const jobs::JobProgress& p) {
  return p.rows_total > 0 ? static_cast<double>(p.rows_done) / static_cast<double>(p.rows_total) : 1;
}

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string format_count(int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (count < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string format_duration(double seconds) {
  const auto s = static_cast<int64_t>(std::lround(std::max(0.0, seconds)));
  const int64_t days = s / 86400;
  if (days > 0) return fmt::format("{} d {:02}:{:02}:{:02}", days, s / 3600 % 24, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string progress_line(const jobs::JobProgress& p) {
  if (p.phase != jobs::JobPhase::kRunning) return phase_name(p.phase);
  std::string text = fmt::format("{}/{} rows ({:.0f}%)", format_count(p.rows_done), format_count(p.rows_total),
                                 std::floor(share_done(p) * 100));
  if (p.rows_failed > 0) text += fmt::format(", {} failed", format_count(p.rows_failed));
  text += fmt::format(" | prompt {} tok/s, generation {} tok/s | {} running, {} waiting | KV {:.0f}%",
                      format_count(std::llround(p.prompt_tokens_per_s)),
                      format_count(std::llround(p.generation_tokens_per_s)), p.running, p.waiting, p.kv_usage * 100);
  if (p.prefix_hit_rate > 0) text += fmt::format(" | prefix hits {:.0f}%", p.prefix_hit_rate * 100);
  if (p.preemptions > 0) text += fmt::format(" | {} preemptions", format_count(p.preemptions));
  text += p.eta_s >= 0 ? fmt::format(" | ETA {}", format_duration(p.eta_s)) : std::string(" | ETA unknown");
  return text;
}

std::string progress_bar(const jobs::JobProgress& p, int columns) {
  constexpr int kWidth = 20;
  const int filled = static_cast<int>(share_done(p) * kWidth);
  std::string text = p.phase == jobs::JobPhase::kRunning
                         ? fmt::format("[{}{}] ", std::string(static_cast<size_t>(filled), '#'),
                                       std::string(static_cast<size_t>(kWidth - filled), '.'))
                         : std::string();
  text += progress_line(p);
  if (static_cast<int>(text.size()) > columns) text.resize(static_cast<size_t>(std::max(columns, 0)));
  return text;
}

ProgressView::ProgressView() : terminal_(::isatty(STDERR_FILENO) != 0) {}

void ProgressView::show(const jobs::JobProgress& progress) {
  if (!log::enabled(log::Level::kInfo)) return;
  if (!terminal_) {
    log::info("{}", progress_line(progress));
    return;
  }
  log::set_status_line(progress_bar(progress, terminal_columns() - 1));
}

void ProgressView::finish() { log::end_status_line(); }

}  // namespace tokenmill::app
