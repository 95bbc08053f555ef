#include "parallel/link_costs.h"

#include <doctest/doctest.h>

#include "parallel/shm_transport.h"

namespace tokenmill::parallel {
namespace {

// Of three ranks: shm starts quicker, mpi carries more; among pairs mpi is never cheaper.
const GroupCosts kCosts{.size = 3,
                        .routes = {{"shm", {1e-6, 2e-9}, {1e-6, 1e-9}}, {"mpi", {5e-6, 1e-9}, {2e-6, 1e-9}}}};

TEST_CASE("each call takes the route that is cheapest for its kind and size") {
  // 1 + 2 x = 5 + x (in us and KB) at 4000 bytes that each rank receives: 2000 from either peer.
  CHECK(kCosts.route(TransferKind::kExchange, 1999) == 0);
  CHECK(kCosts.route(TransferKind::kExchange, 2001) == 1);
  CHECK(kCosts.route(TransferKind::kAllGather, 2001) == 1);
  CHECK(kCosts.route(TransferKind::kBroadcast, 1999) == 0);
  for (const int64_t bytes : {1, 1000, 1 << 30}) CHECK(kCosts.route(TransferKind::kSend, bytes) == 0);
  CHECK(kCosts.route(TransferKind::kRecv, 1 << 30) == 0);  // as its send
}

TEST_CASE("a transfer is predicted on its route") {
  CHECK(kCosts.seconds(TransferKind::kExchange, 1000) == doctest::Approx(1e-6 + 2000 * 2e-9));
  CHECK(kCosts.seconds(TransferKind::kExchange, 10000) == doctest::Approx(5e-6 + 20000 * 1e-9));
  CHECK(kCosts.seconds(TransferKind::kSend, 10000) == doctest::Approx(1e-6 + 10000 * 1e-9));
  CHECK(GroupCosts{}.seconds(TransferKind::kSend, 10000) == 0);
  CHECK(GroupCosts{}.route(TransferKind::kSend, 10000) == 0);
  CHECK(kCosts.describe() == "shm 1.0 us + 2.000 ns/B, mpi 5.0 us + 1.000 ns/B");
}

TEST_CASE("the shared window takes about 3 MiB of each rank, more only in very wide groups") {
  for (const int size : {2, 3, 4, 8, 16, 64}) {
    CAPTURE(size);
    CHECK(shm_window_bytes(size) > 5 << 19);
    CHECK(shm_window_bytes(size) < 13 << 18);
  }
  CHECK(shm_window_bytes(257) < int64_t{20} << 20);
  const ShmShape wide = ShmShape::of_group(2000);
  CHECK(wide.collective.slot_bytes / 2000 >= 64);  // an exchange divides a slot
}

}  // namespace
}  // namespace tokenmill::parallel
