#include "parallel/measure_route.h"

#include <doctest/doctest.h>

#include <chrono>
#include <optional>

#include "parallel/host_communicator.h"
#include "parallel/mpi_transport.h"
#include "parallel/shm_transport.h"
#include "support/immediate_stream.h"

namespace tokenmill::parallel {
namespace {

/// Transfers that take late_s at least: of whatever the ranks do meanwhile, or only of the time in which they call.
class LateTransport final : public HostTransport {
 public:
  LateTransport(const Comm& group, double late_s, bool moves_by_itself)
      : inner_(group), late_s_(late_s), moves_by_itself_(moves_by_itself) {}
  const char* name() const override { return "late"; }
  void start(Transfer transfer, const Move& move) override {
    since_.reset();
    if (moves_by_itself_) since_ = Clock::now();
    inner_.start(transfer, move);
  }
  bool progress() override {
    if (!since_) since_ = Clock::now();
    return inner_.progress();
  }
  bool finished(Transfer transfer) override {
    return since_ && std::chrono::duration<double>(Clock::now() - *since_).count() >= late_s_ &&
           inner_.finished(transfer);
  }

 private:
  using Clock = std::chrono::steady_clock;
  MpiTransport inner_;
  double late_s_;
  bool moves_by_itself_;
  std::optional<Clock::time_point> since_;
};

TEST_CASE("what disturbs one repeat, or most of them, does not count; three alike are certain") {
  FastestOf times;
  for (const double disturbed_s : {9e-3, 2e-6, 5e-3, 7e-3}) times.add(disturbed_s);
  CHECK(times.fastest_s() == 2e-6);
  CHECK_FALSE(times.is_certain());
  times.add(2.1e-6);
  CHECK_FALSE(times.is_certain());
  times.add(1.95e-6);
  CHECK(times.fastest_s() == 1.95e-6);
  CHECK(times.is_certain());
  times.add(1e-6);  // a quieter moment: those before were not undisturbed
  CHECK_FALSE(times.is_certain());
}

TEST_CASE("every transport gets the figures that rank 0 has, in its own place") {
  const Comm world = Comm::world();
  std::vector<std::unique_ptr<HostTransport>> transports;
  constexpr double kLate_s = 2e-3;
  transports.push_back(std::make_unique<LateTransport>(world, kLate_s, true));
  transports.push_back(std::make_unique<ShmTransport>(world));
  transports.push_back(std::make_unique<MpiTransport>(world));
  const std::vector<RouteCosts> routes = measure_routes(world, transports, PeerWatch(world));
  REQUIRE(routes.size() == 3);
  CHECK(routes[0].name == "late");
  CHECK(routes[1].name == "shm");
  CHECK(routes[2].name == "mpi");
  // 1 KiB to each peer at least.
  CHECK(routes[0].seconds(TransferKind::kExchange, 1024, world.size()) >= kLate_s);
  CHECK(routes[0].seconds(TransferKind::kSend, 1024, world.size()) >= kLate_s / 2);
  for (const RouteCosts& route : routes) {
    CAPTURE(route.name);
    for (const LinkCosts& costs : {route.collective, route.pair}) {
      CHECK(costs.alpha_s >= 0);
      CHECK(costs.beta_s_per_byte >= 0);
      CHECK(costs.seconds(1 << 20) > 0);
      for (const LinkCosts& theirs : gather_values(world, costs)) {
        CHECK(theirs.alpha_s == costs.alpha_s);
        CHECK(theirs.beta_s_per_byte == costs.beta_s_per_byte);
      }
    }
  }
}

TEST_CASE("what moves by itself is hidden, what moves when called is not; all ranks have the same share") {
  const Comm world = Comm::world();
  for (const bool moves_by_itself : {true, false}) {
    test::ImmediateStream stream;
    HostProgress progress;
    std::vector<std::unique_ptr<HostTransport>> transports;
    transports.push_back(std::make_unique<LateTransport>(world, 20e-3, moves_by_itself));
    HostCommunicator group(world, stream, progress, std::move(transports), GroupCosts{}, PeerWatch(world));
    // Processes beside this one that take its core are measured too: only what every one of ten measurements says is wrong.
    bool is_hidden = !moves_by_itself;
    for (int i = 0; i < 10 && is_hidden != moves_by_itself; ++i) {
      const double share = measure_hidden_share(world, group, 1000);
      CHECK(share >= 0);
      CHECK(share <= 1);
      for (const double theirs : gather_values(world, share)) CHECK(theirs == share);
      is_hidden = share > 0.5;
    }
    CHECK(is_hidden == moves_by_itself);
  }
}

}  // namespace
}  // namespace tokenmill::parallel
