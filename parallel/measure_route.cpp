#include "parallel/measure_route.h"

#include <algorithm>
#include <chrono>
#include <functional>

namespace tokenmill::parallel {
namespace {

constexpr double kBudget_s = 4e-3;  // per size and pattern
constexpr int kWarmups = 3, kMinRepeats = 5, kMaxRepeats = 50;
constexpr int64_t kShortBytes = 1024;

class Probe {
 public:
  Probe(const Comm& group, HostTransport& transport)
      : group_(group),
        transport_(transport),
        long_bytes_(std::max<int64_t>(16 * 1024, (int64_t{1} << 20) / (group.size() - 1))),
        sent_(static_cast<size_t>(long_bytes_ * group.size())),
        received_(sent_.size()) {}
  int64_t long_bytes() const { return long_bytes_; }

  /// All ranks exchange parts.
  double exchange_s(int64_t part_bytes) {
    return median_s([&] {
      finish({.kind = TransferKind::kExchange,
              .received = received_.data(),
              .sent = sent_.data(),
              .part_bytes = part_bytes});
    });
  }
  /// Ranks 0 and 1 send to and fro, the others look on; one way.
  double one_way_s(int64_t bytes) {
    const Move send{.kind = TransferKind::kSend, .sent = sent_.data(), .part_bytes = bytes, .peer = 1 - group_.rank()};
    const Move recv{
        .kind = TransferKind::kRecv, .received = received_.data(), .part_bytes = bytes, .peer = 1 - group_.rank()};
    return median_s([&] {
             if (group_.rank() > 1) return;
             finish(group_.rank() == 0 ? send : recv);
             finish(group_.rank() == 0 ? recv : send);
           }) /
           2;
  }

 private:
  void finish(const Move& move) {
    transport_.start(1, move);
    for (BackOff back_off = BackOff::quick(); !transport_.finished(1);)
      if (!transport_.progress()) back_off.pause();
  }

  double median_s(const std::function<void()>& once) {
    const auto timed = [&] {
      const auto begin = std::chrono::steady_clock::now();
      once();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    double fastest_s = timed();
    for (int i = 1; i < kWarmups; ++i) fastest_s = std::min(fastest_s, timed());
    // All ranks repeat equally often: as often as rank 0 says.
    const int repeats =
        gather_values(group_, static_cast<int>(std::clamp<double>(kBudget_s / fastest_s, kMinRepeats, kMaxRepeats)))[0];
    once();  // after the gather the ranks come at different times
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) times.push_back(timed());
    std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
    return times[static_cast<size_t>(repeats / 2)];
  }

  const Comm& group_;
  HostTransport& transport_;
  int64_t long_bytes_;
  std::vector<std::byte> sent_, received_;
};

LinkCosts line_through(int64_t short_bytes, double short_s, int64_t long_bytes, double long_s) {
  LinkCosts costs;
  costs.beta_s_per_byte = std::max(0.0, long_s - short_s) / static_cast<double>(long_bytes - short_bytes);
  costs.alpha_s = std::max(0.0, short_s - costs.beta_s_per_byte * static_cast<double>(short_bytes));
  return costs;
}

}  // namespace

RouteCosts measure_route(const Comm& group, HostTransport& transport, const char* name) {
  Probe probe(group, transport);
  const int64_t peers = group.size() - 1;
  const int64_t long_bytes = probe.long_bytes();
  struct {
    LinkCosts collective, pair;
  } costs;
  const double short_s = probe.exchange_s(kShortBytes);
  costs.collective = line_through(kShortBytes * peers, short_s, long_bytes * peers, probe.exchange_s(long_bytes));
  const double short_way_s = probe.one_way_s(kShortBytes);
  costs.pair = line_through(kShortBytes, short_way_s, long_bytes, probe.one_way_s(long_bytes));
  costs = gather_values(group, costs)[0];
  return {.name = name, .collective = costs.collective, .pair = costs.pair};
}

}  // namespace tokenmill::parallel
