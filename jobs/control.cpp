#include "jobs/control.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <type_traits>

#include "kernels/core/check.h"
#include "kernels/core/clock.h"
#include "kernels/core/log.h"

namespace tokenmill::jobs {
namespace {

constexpr double kMinSleep_s = 100e-6;
constexpr double kMaxSleep_s = 10e-3;
constexpr double kMaxSleepAwaited_s = 1e-3;  // an answer of rank 0 is awaited
constexpr double kMaxSleepServing_s = 2e-3;  // requests of other ranks may come
constexpr double kFlush_s = 60;
constexpr double kStatusAwaited_s = 0.02;  // a request may wait for rows to be finished: tell rank 0 sooner

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
T value_of(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  TM_ASSERT(bytes.size() == sizeof(T), "a control message of {} bytes, expected {}", bytes.size(), sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

template <typename T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  TM_ASSERT(bytes.size() % sizeof(T) == 0, "a control message of {} bytes, expected a multiple of {}", bytes.size(),
            sizeof(T));
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

Control::Control(parallel::MpiSession& session, const std::vector<int>& leaders, const ControlOptions& options,
                 Coordinator coordinator)
    : session_(session),
      options_(options),
      leaders_(leaders),
      rank_(session.world().rank()),
      size_(session.world().size()),
      channel_(session.world()),
      start_(std::chrono::steady_clock::now()),
      coordinator_(std::move(coordinator)),
      walltime_(options.walltime),
      statuses_(leaders.size()),
      distributions_(leaders.size()),
      thread_([this] { run(); }) {}

Control::~Control() {
  if (thread_.joinable()) finish();
}

std::optional<std::vector<RowRun>> Control::pull() {
  std::unique_lock lock(mutex_);
  TM_ASSERT(!outbox_.request && !grant_);
  outbox_.request = true;
  wake_.notify_one();
  granted_.wait(lock, [&] { return grant_.has_value(); });
  std::optional<std::vector<RowRun>> runs = std::exchange(grant_, std::nullopt);
  if (runs->empty()) return std::nullopt;
  return runs;
}

void Control::publish(const ReplicaStatus& status) {
  std::lock_guard lock(mutex_);
  outbox_.status = status;
}

void Control::publish_distributions(std::string bytes) {
  std::lock_guard lock(mutex_);
  outbox_.distributions = std::move(bytes);
}

void Control::request_stop(StopLevel level) {
  std::lock_guard lock(mutex_);
  outbox_.stop = std::max(outbox_.stop, level);
  wake_.notify_one();
}

void Control::fatal(const Error& error) {
  if (size_ == 1 || rank_ == 0) session_.abort(error);
  const Error placed(error.kind(), parallel::world_place() + ": " + error.what());
  {
    std::lock_guard lock(mutex_);
    if (!outbox_.fatal) outbox_.fatal = placed;
    wake_.notify_one();
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(options_.fatal_wait_s));
  session_.abort_as_is(placed);
}

void Control::finish() {
  {
    std::lock_guard lock(mutex_);
    outbox_.finish = true;
    wake_.notify_one();
  }
  thread_.join();
}

double Control::elapsed_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Control::run() {
  try {
    loop();
  } catch (const std::exception& e) {
    const Error* ours = dynamic_cast<const Error*>(&e);
    session_.abort(ours != nullptr ? *ours : Error(ErrorKind::kInternal, std::string(e.what())));
  }
}

void Control::loop() {
  double sleep_s = kMinSleep_s;
  for (;;) {
    bool active = send_outbox(elapsed_s());
    while (const auto frame = channel_.poll()) {
      receive(*frame);
      active = true;
    }
    if (rank_ == 0) {
      announce_stop(SteadyClock().now_s());
      report_progress(elapsed_s());
    }
    if (goodbyes_ == size_)
      for (int rank = 0; rank < size_; ++rank) deliver(rank, kDismissal, {});
    if (dismissed_) break;
    const double longest_s = rank_ == 0 && size_ > 1 ? kMaxSleepServing_s
                             : request_open_         ? kMaxSleepAwaited_s
                                                     : kMaxSleep_s;
    sleep_s = active ? kMinSleep_s : std::min(sleep_s * 1.5, longest_s);
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::duration<double>(sleep_s), [&] {
      return outbox_.request || outbox_.fatal || outbox_.stop != StopLevel::kNone || (outbox_.finish && !goodbye_sent_);
    });
  }
  if (!channel_.flush(kFlush_s))
    throw Error(ErrorKind::kMpi, "other ranks did not take this rank's last messages within {:.0f} s", kFlush_s);
}

/// Sends what this rank's threads asked for; true when there was something besides a status.
bool Control::send_outbox(double now_s) {
  Outbox out;
  {
    std::lock_guard lock(mutex_);
    out.request = std::exchange(outbox_.request, false);
    out.finish = outbox_.finish;
    out.stop = std::exchange(outbox_.stop, StopLevel::kNone);
    out.fatal = std::exchange(outbox_.fatal, std::nullopt);
    out.status = std::exchange(outbox_.status, std::nullopt);
    out.distributions = std::exchange(outbox_.distributions, std::nullopt);
  }
  if (out.status) unsent_status_ = out.status;
  const bool says_goodbye = out.finish && !goodbye_sent_;
  const double due_s = last_status_s_ + (request_open_ ? kStatusAwaited_s : options_.status_s);
  if (unsent_status_ && (out.request || says_goodbye || now_s >= due_s)) {
    deliver(0, kStatus, bytes_of(*unsent_status_));
    unsent_status_.reset();
    last_status_s_ = now_s;
  }
  if (out.distributions) deliver(0, kDistributions, std::as_bytes(std::span(*out.distributions)));
  if (out.request) {
    request_open_ = true;
    deliver(0, kRequest, {});
  }
  if (out.stop != StopLevel::kNone) deliver(0, kStopRequest, bytes_of(out.stop));
  if (out.fatal) {
    const std::string text = std::string(1, static_cast<char>(out.fatal->kind())) + out.fatal->what();
    deliver(0, kFatal, std::as_bytes(std::span(text)));
  }
  if (says_goodbye) {
    goodbye_sent_ = true;
    deliver(0, kGoodbye, {});
  }
  return out.request || out.fatal || says_goodbye;
}

void Control::receive(const parallel::Frame& frame) {
  handle(frame.from, static_cast<Message>(frame.type), frame.bytes);
}

void Control::deliver(int to, Message type, std::span<const std::byte> bytes) {
  if (to == rank_)
    handle(rank_, type, bytes);
  else
    channel_.send(to, type, bytes);
}

void Control::handle(int from, Message type, std::span<const std::byte> bytes) {
  switch (type) {
    case kRequest:
      send_grants(coordinator_.request(replica_of(from)));
      return;
    case kStatus: {
      const int replica = replica_of(from);
      ReplicaStatus& status = statuses_.at(static_cast<size_t>(replica));
      status = value_of<ReplicaStatus>(bytes);
      send_grants(coordinator_.finished(replica, status.rows_finished));
      return;
    }
    case kGrant: {
      request_open_ = false;
      std::lock_guard lock(mutex_);
      grant_ = values_of<RowRun>(bytes);
      granted_.notify_one();
      return;
    }
    case kDistributions:
      distributions_.at(static_cast<size_t>(replica_of(from)))
          .assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      return;
    case kFatal: {
      TM_ASSERT(!bytes.empty());
      const auto* text = reinterpret_cast<const char*>(bytes.data());
      session_.abort_as_is(Error(static_cast<ErrorKind>(text[0]), std::string(text + 1, bytes.size() - 1)));
    }
    case kGoodbye:
      ++goodbyes_;
      return;
    case kStopRequest:
      walltime_.request(value_of<StopLevel>(bytes), SteadyClock().now_s());
      return;
    case kStop:
      stop_level_ = value_of<StopLevel>(bytes);
      return;
    case kDismissal:
      dismissed_ = true;
      return;
  }
  TM_ASSERT(false, "control message of type {} from rank {}", static_cast<int>(type), from);
}

/// On rank 0: tells every rank when the level has risen.
void Control::announce_stop(double now_s) {
  RunSpeed speed;
  for (const ReplicaStatus& status : statuses_) {
    speed.longest_step_s = std::max(speed.longest_step_s, status.longest_step_s);
    speed.row_s = std::max(speed.row_s, status.row_s);
  }
  const StopLevel level = walltime_.update(now_s, speed);
  if (level == stop_level_) return;
  send_grants(coordinator_.stop());
  for (int rank = 0; rank < size_; ++rank) deliver(rank, kStop, bytes_of(level));
}

int Control::replica_of(int leader) const {
  const auto found = std::find(leaders_.begin(), leaders_.end(), leader);
  TM_ASSERT(found != leaders_.end(), "rank {} leads no replica", leader);
  return static_cast<int>(found - leaders_.begin());
}

void Control::send_grants(const std::vector<Grant>& grants) {
  for (const Grant& grant : grants) {
    log::debug("{} rows in {} runs go to replica {}; {} are left", grant.num_rows(), grant.runs.size(), grant.replica,
               coordinator_.rows_left());
    deliver(leaders_.at(static_cast<size_t>(grant.replica)), kGrant, std::as_bytes(std::span(grant.runs)));
  }
}

void Control::report_progress(double now_s) {
  if (options_.on_metrics && now_s - last_metrics_s_ >= options_.metrics_s) {
    last_metrics_s_ = now_s;
    options_.on_metrics(statuses_, distributions_, now_s);
  }
  const bool is_last = goodbyes_ == size_;
  if (!options_.on_progress || (!is_last && now_s - last_progress_s_ < options_.progress_s)) return;
  last_progress_s_ = now_s;
  options_.on_progress(statuses_, now_s);
}

}  // namespace tokenmill::jobs
