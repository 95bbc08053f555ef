#include "parallel/measure_route.h"

#include <algorithm>
#include <chrono>
#include <functional>

namespace tokenmill::parallel {
namespace {

constexpr double kBudget_s = 16e-3;  // per size and pattern, where the fastest does not become certain before
constexpr int kMinRounds = 4;
constexpr int64_t kShortBytes = 1024;
constexpr int kShortBatch = 8;  // transfers timed as one: a rank that is behind finds the first one's bytes there

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

class Probe {
 public:
  Probe(const Comm& group, std::span<const std::unique_ptr<HostTransport>> transports, const PeerWatch& watch)
      : rank_(group.rank()),
        size_(group.size()),
        transports_(transports),
        watch_(watch),
        long_bytes_(std::max<int64_t>(16 * 1024, (int64_t{512} << 10) / (group.size() - 1))),
        sent_(static_cast<size_t>(long_bytes_ * group.size())),
        received_(sent_.size()) {}
  int64_t long_bytes() const { return long_bytes_; }

  /// By transport: all ranks exchange parts. Rank 0's figures mean something.
  std::vector<double> exchange_s(int64_t part_bytes) {
    return fastest_s(part_bytes, [&](HostTransport& transport) {
      finish(transport, {.kind = TransferKind::kExchange,
                         .received = received_.data(),
                         .sent = sent_.data(),
                         .part_bytes = part_bytes});
    });
  }
  /// Ranks 0 and 1 send to and fro, the others do nothing; one way.
  std::vector<double> one_way_s(int64_t bytes) {
    std::vector<double> seconds(transports_.size());
    if (rank_ > 1) return seconds;
    const Move send{.kind = TransferKind::kSend, .sent = sent_.data(), .part_bytes = bytes, .peer = 1 - rank_};
    const Move recv{.kind = TransferKind::kRecv, .received = received_.data(), .part_bytes = bytes, .peer = 1 - rank_};
    seconds = fastest_s(bytes, [&](HostTransport& transport) {
      finish(transport, rank_ == 0 ? send : recv);
      finish(transport, rank_ == 0 ? recv : send);
    });
    for (double& s : seconds) s /= 2;
    return seconds;
  }

 private:
  void finish(HostTransport& transport, const Move& move) {
    transport.start(1, move);
    for (PeerWait wait(watch_, "a transfer that is measured"); !transport.finished(1);)
      if (!transport.progress()) wait.pause();
  }

  /// Rounds of `once` by every transport, until rank 0 has seen enough: the first byte that it sends to each rank says
  /// whether another round follows.
  std::vector<double> fastest_s(int64_t part_bytes, const std::function<void(HostTransport&)>& once) {
    const int batch = part_bytes <= kShortBytes ? kShortBatch : 1;
    std::vector<FastestOf> times(transports_.size());
    const auto begin = Clock::now();
    bool is_last = false;
    for (int round = 0; !is_last; ++round) {
      if (rank_ == 0) {
        is_last = round >= kMinRounds && (seconds_since(begin) > kBudget_s ||
                                          std::ranges::all_of(times, [](const auto& t) { return t.is_certain(); }));
        for (int to = 0; to < size_; ++to)
          sent_[static_cast<size_t>(to * part_bytes)] = static_cast<std::byte>(is_last);
      }
      for (size_t i = 0; i < transports_.size(); ++i) {
        const auto start = Clock::now();
        for (int n = 0; n < batch; ++n) once(*transports_[i]);
        times[i].add(seconds_since(start) / batch);
      }
      if (rank_ != 0) is_last = received_[0] != std::byte{0};
    }
    std::vector<double> seconds;
    for (const FastestOf& t : times) seconds.push_back(t.fastest_s());
    return seconds;
  }

  int rank_, size_;
  std::span<const std::unique_ptr<HostTransport>> transports_;
  const PeerWatch& watch_;
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

void FastestOf::add(double seconds) {
  for (double& place : fastest_s_)
    if (seconds < place) std::swap(seconds, place);
}

std::vector<RouteCosts> measure_routes(const Comm& group, std::span<const std::unique_ptr<HostTransport>> transports,
                                       const PeerWatch& watch) {
  Probe probe(group, transports, watch);
  const int64_t peers = group.size() - 1, long_bytes = probe.long_bytes();
  const std::vector<double> short_s = probe.exchange_s(kShortBytes), long_s = probe.exchange_s(long_bytes);
  const std::vector<double> short_way_s = probe.one_way_s(kShortBytes), long_way_s = probe.one_way_s(long_bytes);
  std::vector<RouteCosts> routes;
  for (size_t i = 0; i < transports.size(); ++i) {
    struct {
      LinkCosts collective, pair;
    } costs{line_through(kShortBytes * peers, short_s[i], long_bytes * peers, long_s[i]),
            line_through(kShortBytes, short_way_s[i], long_bytes, long_way_s[i])};
    costs = gather_values(group, costs)[0];
    routes.push_back({.name = transports[i]->name(), .collective = costs.collective, .pair = costs.pair});
  }
  return routes;
}

double measure_hidden_share(const Comm& group, Communicator& communicator, int64_t part_bytes) {
  constexpr int kRepeats = 5;
  std::vector<std::byte> part(static_cast<size_t>(part_bytes)), all(part.size() * static_cast<size_t>(group.size()));
  const auto gather_s = [&](double computing_s) {
    const auto begin = Clock::now();
    const auto transfer = communicator.all_gather(TensorView(all.data(), DType::kU8, {group.size(), part_bytes}),
                                                  TensorView(part.data(), DType::kU8, {part_bytes}));
    const auto started = Clock::now();
    while (seconds_since(started) < computing_s) {
    }
    communicator.wait(transfer);
    communicator.stream().synchronize();
    return seconds_since(begin);
  };
  FastestOf alone, beside;
  for (int i = 0; i < kRepeats; ++i) alone.add(gather_s(0));
  const double alone_s = gather_values(group, alone.fastest_s())[0];
  for (int i = 0; i < kRepeats; ++i) {
    alone.add(gather_s(0));  // in turn: else a quieter moment would look like something hidden
    beside.add(gather_s(alone_s));
  }
  const double exposed_s = beside.fastest_s() - alone_s;
  return gather_values(group, std::clamp(1 - exposed_s / alone.fastest_s(), 0.0, 1.0))[0];
}

}  // namespace tokenmill::parallel
