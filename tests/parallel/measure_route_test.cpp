#include "parallel/measure_route.h"

#include <doctest/doctest.h>

#include <chrono>

#include "parallel/mpi_transport.h"
#include "parallel/shm_transport.h"

namespace tokenmill::parallel {
namespace {

/// Transfers that end kLate_s after their start at the earliest.
class LateTransport final : public HostTransport {
 public:
  static constexpr double kLate_s = 2e-3;
  explicit LateTransport(const Comm& group) : inner_(group) {}
  const char* name() const override { return "late"; }
  void start(Transfer transfer, const Move& move) override {
    started_ = std::chrono::steady_clock::now();
    inner_.start(transfer, move);
  }
  bool progress() override { return inner_.progress(); }
  bool finished(Transfer transfer) override {
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - started_;
    return since.count() >= kLate_s && inner_.finished(transfer);
  }

 private:
  MpiTransport inner_;
  std::chrono::steady_clock::time_point started_;
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
  transports.push_back(std::make_unique<LateTransport>(world));
  transports.push_back(std::make_unique<ShmTransport>(world));
  transports.push_back(std::make_unique<MpiTransport>(world));
  const std::vector<RouteCosts> routes = measure_routes(world, transports, PeerWatch(world));
  REQUIRE(routes.size() == 3);
  CHECK(routes[0].name == "late");
  CHECK(routes[1].name == "shm");
  CHECK(routes[2].name == "mpi");
  // 1 KiB to each peer at least.
  CHECK(routes[0].seconds(TransferKind::kExchange, 1024, world.size()) >= LateTransport::kLate_s);
  CHECK(routes[0].seconds(TransferKind::kSend, 1024, world.size()) >= LateTransport::kLate_s / 2);
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

}  // namespace
}  // namespace tokenmill::parallel
