#include "jobs/coordinator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

/// Simulates replicas that each compute `width` rows at a time and pull when they hold fewer than width + prefetch
/// rows. Time is counted in ticks; row r costs cost(r) ticks of one slot.
struct Simulation {
  struct Replica {
    int64_t width = 4, speed = 1;
    std::deque<int64_t> queued;    // rows
    std::vector<int64_t> running;  // ticks left
    int64_t finished = 0, rows = 0, last_tick = 0;
    bool waiting = false, ended = false;
  };

  explicit Simulation(std::vector<RowRange> todo, size_t num_replicas, int64_t max_chunk)
      : coordinator(std::move(todo), static_cast<int>(num_replicas), max_chunk), replicas(num_replicas) {}

  void take(const std::vector<Grant>& grants) {
    for (const Grant& grant : grants) {
      Replica& r = replicas[static_cast<size_t>(grant.replica)];
      REQUIRE(r.waiting);
      r.waiting = false;
      if (grant.rows.size() == 0) r.ended = true;
      for (int64_t row = grant.rows.begin; row < grant.rows.end; ++row) {
        r.queued.push_back(row);
        handed_out.push_back(row);
      }
    }
  }

  /// Returns the ticks until everything is finished.
  template <typename Cost>
  int64_t run(Cost&& cost) {
    for (int64_t tick = 0; tick < 10'000'000; ++tick) {
      bool all_ended = true;
      for (size_t i = 0; i < replicas.size(); ++i) {
        Replica& r = replicas[i];
        if (!r.waiting && !r.ended && r.queued.size() < 2) {
          r.waiting = true;
          take(coordinator.request(static_cast<int>(i)));
        }
        while (static_cast<int64_t>(r.running.size()) < r.width && !r.queued.empty()) {
          r.running.push_back(cost(r.queued.front()));
          r.queued.pop_front();
          ++r.rows;
        }
        for (int64_t& left : r.running) left -= r.speed;
        const auto done = std::erase_if(r.running, [](int64_t left) { return left <= 0; });
        if (done > 0) {
          r.finished += static_cast<int64_t>(done);
          r.last_tick = tick;
          take(coordinator.finished(static_cast<int>(i), r.finished));
        }
        all_ended = all_ended && r.ended && r.running.empty() && r.queued.empty();
      }
      if (all_ended) return tick;
    }
    FAIL("the simulation does not end");
    return 0;
  }

  Coordinator coordinator;
  std::vector<Replica> replicas;
  std::vector<int64_t> handed_out;
};

TEST_CASE("every row is handed out once, in ascending order, whatever the replicas' speed") {
  std::mt19937_64 random(7);
  for (const size_t num_replicas : {1, 2, 3, 16}) {
    for (const int64_t rows : {1, 2, 15, 1000}) {
      Simulation simulation({{0, rows}}, num_replicas, 64);
      for (auto& replica : simulation.replicas) {
        replica.width = 1 + static_cast<int64_t>(random() % 8);
        replica.speed = 1 + static_cast<int64_t>(random() % 5);
      }
      simulation.run([&](int64_t) { return 1 + static_cast<int64_t>(random() % 50); });
      REQUIRE(static_cast<int64_t>(simulation.handed_out.size()) == rows);
      for (int64_t row = 0; row < rows; ++row) CHECK(simulation.handed_out[static_cast<size_t>(row)] == row);
      CHECK(simulation.coordinator.rows_left() == 0);
    }
  }
}

TEST_CASE("gaps in the work are respected") {
  Simulation simulation({{3, 5}, {10, 30}, {31, 32}}, 2, 8);
  simulation.run([](int64_t) { return 3; });
  std::vector<int64_t> expected{3, 4};
  for (int64_t row = 10; row < 30; ++row) expected.push_back(row);
  expected.push_back(31);
  CHECK(simulation.handed_out == expected);
}

TEST_CASE("a replica that asks first and often leaves the others their share") {
  Coordinator coordinator({{0, 100}}, 4, 256);
  int64_t held = 0;
  for (;;) {  // replica 0 pulls without finishing anything
    const auto grants = coordinator.request(0);
    if (grants.empty()) break;
    held += grants[0].rows.size();
  }
  CHECK(held == 25);
  CHECK(coordinator.rows_held(0) == 25);
  // Its open request is answered once it has finished rows, with no more than its share again.
  const auto later = coordinator.finished(0, 10);
  REQUIRE(later.size() == 1);
  CHECK(later[0].replica == 0);
  CHECK(coordinator.rows_held(0) <= (90 + 3) / 4);
}

TEST_CASE("chunks shrink towards the end and never exceed the limit") {
  Coordinator coordinator({{0, 10'000}}, 2, 300);
  std::vector<int64_t> sizes;
  int64_t finished = 0;
  while (coordinator.rows_left() > 0) {
    const auto grants = coordinator.request(0);
    REQUIRE(grants.size() == 1);
    sizes.push_back(grants[0].rows.size());
    finished += grants[0].rows.size();
    coordinator.finished(0, finished);
  }
  CHECK(sizes.front() == 300);
  CHECK(sizes.back() == 1);
  CHECK(std::is_sorted(sizes.rbegin(), sizes.rend()));
}

TEST_CASE("a slow replica gets less work, and all end nearly together") {
  Simulation simulation({{0, 4000}}, 4, 64);
  for (auto& replica : simulation.replicas) replica.width = 16;
  simulation.replicas[3].speed = 1;
  for (size_t i = 0; i < 3; ++i) simulation.replicas[i].speed = 4;
  const int64_t ticks = simulation.run([](int64_t) { return 40; });
  // Work: 4000 rows x 40 ticks over (3 x 4 + 1) x 16 units per tick = 770 ticks at best.
  CHECK(ticks < 900);
  CHECK(simulation.replicas[3].rows * 3 < simulation.replicas[0].rows);
}

TEST_CASE("when nothing is left every request is answered with no rows") {
  Coordinator coordinator({}, 3, 8);
  for (int replica = 0; replica < 3; ++replica)
    CHECK(coordinator.request(replica) == std::vector<Grant>{{replica, {}}});
}

TEST_CASE("waiting requests end when the last row is handed out") {
  Coordinator coordinator({{0, 2}}, 2, 8);
  CHECK(coordinator.request(0) == std::vector<Grant>{{0, {0, 1}}});
  CHECK(coordinator.request(0).empty());  // its share is one row
  const auto grants = coordinator.request(1);
  CHECK(grants == std::vector<Grant>{{1, {1, 2}}, {0, {}}});
}

TEST_CASE("impossible events are refused") {
  Coordinator coordinator({{0, 10}}, 2, 8);
  CHECK_THROWS_AS(coordinator.finished(0, 1), Error);  // more than it was given
  coordinator.request(0);
  CHECK_THROWS_AS((Coordinator({{5, 9}, {8, 10}}, 2, 8)), Error);  // overlapping work
}

}  // namespace
}  // namespace tokenmill::jobs
