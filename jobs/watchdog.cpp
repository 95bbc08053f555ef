#include "jobs/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <span>

#include "kernels/core/check.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"

namespace tokenmill::jobs {
namespace {

enum Message : int { kState = 1, kFarewell };
constexpr double kLongestFarewell_s = 10;  // a rank that is gone by then says none

template <size_t kSize>
void copy_text(std::array<char, kSize>& to, std::string_view text) {
  to = {};
  std::memcpy(to.data(), text.data(), std::min(text.size(), kSize - 1));
}

bool alike(const RankState& a, const RankState& b) {
  return a.what == b.what && a.waits == b.waits && a.host == b.host && a.sequence == b.sequence &&
         a.num_rows == b.num_rows && a.must_end == b.must_end;
}

std::string describe(const RankState& state) {
  std::string text = state.what.data();
  if (state.must_end) fmt::format_to(std::back_inserter(text), " {} for {:.1f} s", state.sequence, state.lasts_s);
  if (state.waits[0] != '\0') fmt::format_to(std::back_inserter(text), ", waiting for {}", state.waits.data());
  return text;
}

/// " on node1"; empty for a rank that has said nothing yet.
std::string on_host(const RankState& state) {
  return state.host[0] == '\0' ? "" : fmt::format(" on {}", state.host.data());
}

}  // namespace

std::optional<Stalled> find_stalled(const std::vector<RankState>& states, const std::vector<double>& silent_s,
                                    const StallLimits& limits) {
  std::optional<Stalled> stalled;
  double longest = 1;  // share of a limit
  const bool one_gets_on = limits.together && std::any_of(states.begin(), states.end(), [&](const RankState& state) {
                             return !state.must_end || state.lasts_s <= limits.lasts_s;
                           });
  for (size_t rank = 0; rank < states.size(); ++rank) {
    const double lasts_s = states[rank].must_end && !one_gets_on ? states[rank].lasts_s : 0;
    const double lasts = lasts_s / limits.lasts_s, silent = silent_s[rank] / limits.silent_s;
    const double share = std::max(lasts, silent);
    if (share <= longest) continue;
    longest = share;
    stalled = {static_cast<int>(rank), silent > lasts};
  }
  return stalled;
}

std::vector<std::string> describe_ranks(const std::vector<RankState>& states, const std::vector<double>& silent_s) {
  std::vector<std::string> lines;
  for (size_t first = 0, next = 0; first < states.size(); first = next) {
    for (next = first + 1; next < states.size() && alike(states[first], states[next]);) ++next;
    const RankState& state = states[first];
    const std::string ranks =
        next - first == 1 ? fmt::format("rank {}", first) : fmt::format("ranks {}-{}", first, next - 1);
    lines.push_back(fmt::format("{}{}: {}, {} rows in flight, last heard {:.1f} s ago", ranks, on_host(state),
                                describe(state), state.num_rows, silent_s[first]));
  }
  return lines;
}

Watchdog::Watchdog(parallel::MpiSession& session, const std::vector<const Activity*>& activities,
                   WatchdogOptions options)
    : session_(session),
      options_(std::move(options)),
      rank_(session.world().rank()),
      size_(session.world().size()),
      beat_s_(std::clamp(options_.stall_s / 8, 0.05, 1.0)),
      channel_(session.world()),
      states_(rank_ == 0 ? static_cast<size_t>(size_) : 0),
      silent_s_(static_cast<size_t>(size_)) {
  for (const Activity* activity : activities) watched_.push_back({activity});
  if (options_.stall_s > 0) thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
    parts_ = std::uncaught_exceptions() == 0;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Watchdog::run() {
  try {
    const SteadyClock clock;
    double round_start_s = clock.now_s();
    for (;;) {
      beat();
      listen();
      judge();
      {
        std::unique_lock lock(mutex_);
        if (wake_.wait_for(lock, std::chrono::duration<double>(beat_s_), [&] { return ends_; })) break;
      }
      const double now_s = clock.now_s();
      count(std::min(now_s - std::exchange(round_start_s, now_s), 2 * beat_s_));
    }
    if (parts_) part();
  } catch (const Error& error) {
    session_.abort(error);
  }
}

/// A round took so long.
void Watchdog::count(double round_s) {
  for (double& silent_s : silent_s_) silent_s += round_s;
  for (Watched& watched : watched_) {
    const int64_t changes = watched.activity->now().changes;
    watched.lasts_s = changes == std::exchange(watched.changes, changes) ? watched.lasts_s + round_s : 0;
  }
}

/// Of the thread that has been at something that must end for longest; else of the main one.
RankState Watchdog::my_state() const {
  const auto burden_s = [](const Watched& w) { return w.activity->now().must_end ? w.lasts_s : -1; };
  const Watched& watched = *std::max_element(
      watched_.begin(), watched_.end(), [&](const Watched& a, const Watched& b) { return burden_s(a) < burden_s(b); });
  const Activity::Now now = watched.activity->now();
  RankState state{.sequence = now.sequence,
                  .num_rows = watched_.front().activity->now().num_rows,
                  .lasts_s = watched.lasts_s,
                  .must_end = now.must_end};
  copy_text(state.host, parallel::host_name());
  copy_text(state.what, now.what);
  if (options_.waits_in) copy_text(state.waits, options_.waits_in());
  return state;
}

void Watchdog::beat() {
  const RankState mine = my_state();
  const auto bytes = std::as_bytes(std::span(&mine, 1));
  if (rank_ != 0) return channel_.send(0, kState, bytes);
  states_[0] = mine;
  silent_s_[0] = 0;
  for (int rank = 1; rank < size_; ++rank) channel_.send(rank, kState, bytes);
}

void Watchdog::listen() {
  while (const auto frame = channel_.poll()) {
    const auto from = static_cast<size_t>(frame->from);
    silent_s_[from] = 0;
    if (frame->type == kFarewell) ++farewells_;
    if (rank_ != 0 || frame->type != kState) continue;
    TM_ASSERT(frame->bytes.size() == sizeof(RankState));
    std::memcpy(&states_[from], frame->bytes.data(), sizeof(RankState));
  }
}

/// Takes all that is under way. What is left of a communicator would be received by the next one that MPI gives its
/// context to: a state as the first request for rows, say.
void Watchdog::part() {
  for (int rank = rank_ == 0 ? 1 : 0; rank < (rank_ == 0 ? size_ : 1); ++rank) channel_.send(rank, kFarewell, {});
  const int awaited = rank_ == 0 ? size_ - 1 : 1;
  const auto start = std::chrono::steady_clock::now();
  for (parallel::BackOff back_off; farewells_ < awaited; back_off.pause()) {
    listen();
    if (std::chrono::steady_clock::now() - start > std::chrono::duration<double>(kLongestFarewell_s)) return;
  }
  channel_.flush(kLongestFarewell_s);
}

double Watchdog::silence_limit_s() const {
  const bool saving = options_.saving && options_.saving();
  return std::min(options_.stall_s, saving ? options_.silence_saving_s : options_.silence_s);
}

void Watchdog::judge() {
  const double silence_s = silence_limit_s();
  if (rank_ != 0) {
    if (silent_s_[0] > 2 * silence_s)
      session_.abort(Error(ErrorKind::kMpi,
                           "rank 0 has not been heard for {:.1f} s: it is gone or stands still; finished rows are "
                           "kept: the same command goes on",
                           silent_s_[0]));
    return;
  }
  const std::optional<Stalled> stalled = find_stalled(
      states_, silent_s_, {.lasts_s = options_.stall_s, .silent_s = silence_s, .together = options_.together});
  if (!stalled) return;
  if (stalled->silent)
    log::error("a rank has not been heard for {:.1f} s; all of them:", silent_s_[static_cast<size_t>(stalled->rank)]);
  else
    log::error("a rank makes no progress (--stall-seconds {:g}); all of them:", options_.stall_s);
  for (const std::string& line : describe_ranks(states_, silent_s_)) log::error("  {}", line);
  end_job(*stalled);
}

void Watchdog::end_job(const Stalled& stalled) {
  const RankState& state = states_[static_cast<size_t>(stalled.rank)];
  const std::string why = stalled.silent ? fmt::format("has not been heard for {:.1f} s: it has died or does not run",
                                                       silent_s_[static_cast<size_t>(stalled.rank)])
                                         : fmt::format("makes no progress ({})", describe(state));
  if (options_.on_stall) options_.on_stall(stalled.rank, state);
  // Commit threads go on by themselves while main threads hang.
  std::this_thread::sleep_for(std::chrono::duration<double>(std::min(options_.commit_s + 1, 10.0)));
  session_.abort_as_is(Error(ErrorKind::kMpi, "rank {} of {}{} {}; finished rows are kept: the same command goes on",
                             stalled.rank, size_, on_host(state), why));
}

void watch_together(parallel::MpiSession& session, double stall_s, const Activity& activity,
                    const std::function<void()>& work) {
  const Watchdog watchdog(session, {&activity}, {.stall_s = stall_s, .together = true, .commit_s = 0});
  work();
  parallel::agree(session.world(), std::nullopt);
}

}  // namespace tokenmill::jobs
