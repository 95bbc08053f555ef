#include "jobs/coordinator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <utility>
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

  Simulation(int64_t rows, size_t num_replicas, const CoordinatorOptions& options)
      : Simulation(RowPlan(rows), RowSet(rows), num_replicas, options) {}
  Simulation(RowPlan plan, RowSet done, size_t num_replicas, const CoordinatorOptions& options,
             const std::vector<int64_t>& suspects = {})
      : coordinator(std::move(plan), std::move(done), static_cast<int>(num_replicas), options, suspects),
        replicas(num_replicas) {}

  void take(const std::vector<Grant>& grants) {
    for (const Grant& grant : grants) {
      Replica& r = replicas[static_cast<size_t>(grant.replica)];
      REQUIRE(r.waiting);
      r.waiting = false;
      if (grant.num_rows() == 0) r.ended = true;
      for (const RowRun& run : grant.runs)
        for (int64_t row = run.rows.begin; row < run.rows.end; ++row) {
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
      Simulation simulation(rows, num_replicas, {.max_chunk_rows = 64, .busy_rows = 16});
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

TEST_CASE("rows that are done are not handed out") {
  RowSet done(32);
  for (int64_t row = 0; row < 32; ++row)
    if (row < 3 || (row >= 5 && row < 10) || row == 30) done.insert(row);
  Simulation simulation(RowPlan(32), done, 2, {.max_chunk_rows = 8});
  CHECK(simulation.coordinator.rows_left() == 23);
  simulation.run([](int64_t) { return 3; });
  std::vector<int64_t> expected{3, 4};
  for (int64_t row = 10; row < 30; ++row) expected.push_back(row);
  expected.push_back(31);
  std::sort(simulation.handed_out.begin(), simulation.handed_out.end());
  CHECK(simulation.handed_out == expected);
}

TEST_CASE("suspects come last, when all others are finished, one at a time to a replica that holds nothing") {
  RowSet done(40);
  done.insert(4);
  const std::vector<int64_t> suspects{3, 17, 30, 31};
  Simulation simulation(RowPlan(40), done, 3, {.max_chunk_rows = 4}, suspects);
  CHECK(simulation.coordinator.rows_left() == 39);
  simulation.run([](int64_t row) { return 1 + row % 5; });
  std::vector<int64_t>& order = simulation.handed_out;
  REQUIRE(order.size() == 39);
  CHECK(std::vector<int64_t>(order.end() - 4, order.end()) == suspects);
  std::sort(order.begin(), order.end());
  for (int64_t row = 0; row < 39; ++row) CHECK(order[static_cast<size_t>(row)] == row + (row >= 4 ? 1 : 0));

  const auto only = [](int64_t row) { return std::vector<RowRun>{{{row, row + 1}}}; };
  Coordinator coordinator(RowPlan(3), RowSet(3), 2, {}, {0, 2});
  CHECK(coordinator.request(0).at(0).num_rows() == 1);  // row 1
  CHECK(coordinator.request(1).empty());                // it is not finished
  CHECK(coordinator.request(0).empty());
  CHECK(coordinator.finished(0, 1) == std::vector<Grant>{{0, only(0)}, {1, only(2)}});
  CHECK(coordinator.request(1) == std::vector<Grant>{{1, {}}});
  CHECK(coordinator.rows_left() == 0);

  Coordinator alone(RowPlan(2), RowSet(2), 1, {}, {0, 1});
  CHECK(alone.request(0) == std::vector<Grant>{{0, only(0)}});
  CHECK(alone.request(0).empty());  // it holds the first
  CHECK(alone.finished(0, 1) == std::vector<Grant>{{0, only(1)}});
  CHECK(alone.stop().empty());
  CHECK(alone.request(0) == std::vector<Grant>{{0, {}}});
}

TEST_CASE("a replica that asks first and often leaves the others their share") {
  for (const int64_t busy_rows : {0, 10, 100}) {
    Coordinator coordinator(RowPlan(100), RowSet(100), 4, {.busy_rows = busy_rows});
    for (;;) {  // replica 0 pulls without finishing anything
      if (coordinator.request(0).empty()) break;
    }
    const int64_t held = coordinator.rows_held(0);
    CHECK(held <= (busy_rows == 100 ? 25 : 13));
    CHECK(held >= (busy_rows == 100 ? 25 : 7));  // a scrap of a grant is not handed out
    // Its open request is answered once it has finished rows, with no more than its share again.
    const auto later = coordinator.finished(0, held);
    REQUIRE(later.size() == 1);
    CHECK(later[0].replica == 0);
    CHECK(coordinator.rows_held(0) <= (100 - held + 3) / 4);
  }
}

TEST_CASE("chunks shrink towards the end and never exceed the limit") {
  Coordinator coordinator(RowPlan(10'000), RowSet(10'000), 2, {.max_chunk_rows = 300});
  std::vector<int64_t> sizes;
  int64_t finished = 0;
  while (coordinator.rows_left() > 0) {
    const auto grants = coordinator.request(0);
    REQUIRE(grants.size() == 1);
    sizes.push_back(grants[0].num_rows());
    finished += grants[0].num_rows();
    coordinator.finished(0, finished);
  }
  CHECK(sizes.front() == 300);
  CHECK(sizes.back() == 1);
  CHECK(std::is_sorted(sizes.rbegin(), sizes.rend()));
}

TEST_CASE("a slow replica gets less work, and all end nearly together") {
  Simulation simulation(4000, 4, {.max_chunk_rows = 64, .busy_rows = 16});
  for (auto& replica : simulation.replicas) replica.width = 16;
  simulation.replicas[3].speed = 1;
  for (size_t i = 0; i < 3; ++i) simulation.replicas[i].speed = 4;
  const int64_t ticks = simulation.run([](int64_t) { return 40; });
  // Work: 4000 rows x 40 ticks over (3 x 4 + 1) x 16 units per tick = 770 ticks at best.
  CHECK(ticks < 900);
  CHECK(simulation.replicas[3].rows * 3 < simulation.replicas[0].rows);
}

TEST_CASE("when nothing is left every request is answered with no rows") {
  Coordinator coordinator(RowPlan(0), RowSet(0), 3, {});
  for (int replica = 0; replica < 3; ++replica)
    CHECK(coordinator.request(replica) == std::vector<Grant>{{replica, {}}});
}

TEST_CASE("waiting requests end when the last row is handed out") {
  Coordinator coordinator(RowPlan(2), RowSet(2), 2, {});
  CHECK(coordinator.request(0) == std::vector<Grant>{{0, {{{0, 1}}}}});
  CHECK(coordinator.request(0).empty());  // its share is one row
  const auto grants = coordinator.request(1);
  CHECK(grants == std::vector<Grant>{{1, {{{1, 2}}}}, {0, {}}});
}

TEST_CASE("impossible events are refused") {
  Coordinator coordinator(RowPlan(10), RowSet(10), 2, {});
  CHECK_THROWS_AS(coordinator.finished(0, 1), Error);  // more than it was given
  coordinator.request(0);
  CHECK_THROWS_AS(Coordinator(RowPlan(10), RowSet(9), 2, {}), Error);  // not the same job
}

/// `group_of` by row: rows of one group share a prompt's first 2,000 bytes, all rows the first `common` ones.
RowPlan grouped_plan(const std::vector<int>& group_of, size_t common = 0) {
  RowPlanner planner({});
  for (size_t row = 0; row < group_of.size(); ++row) {
    std::string prompt(common, 's');
    std::mt19937 random(static_cast<unsigned>(group_of[row]));
    for (int i = 0; i < 500; ++i) prompt += std::to_string(1000 + random() % 9000);
    planner.add({.offset = static_cast<int64_t>(100 * row), .line = static_cast<int64_t>(row) + 1},
                prompt + " question " + std::to_string(row));
  }
  return planner.finish();
}

std::vector<int> shuffled_groups(int num_groups, int rows_each) {
  std::vector<int> group_of;
  for (int i = 0; i < num_groups * rows_each; ++i) group_of.push_back(i / rows_each);
  std::shuffle(group_of.begin(), group_of.end(), std::mt19937_64(11));
  return group_of;
}

TEST_CASE("grants are whole groups, in ascending runs that say where their rows are") {
  const std::vector<int> group_of = shuffled_groups(64, 16);
  Coordinator coordinator(grouped_plan(group_of), RowSet(1024), 1, {.max_chunk_rows = 100});
  int64_t finished = 0;
  std::vector<int> grants_of(64);
  while (coordinator.rows_left() > 128) {
    const Grant grant = coordinator.request(0).at(0);
    CHECK(grant.num_rows() % 16 == 0);
    CHECK(grant.num_rows() <= 100);
    std::vector<int> rows_of(64);
    int64_t last = -1;
    for (const RowRun& run : grant.runs) {
      CHECK(run.rows.begin > last);
      CHECK(run.position == io::RecordPosition{.offset = 100 * run.rows.begin, .line = run.rows.begin + 1});
      for (int64_t row = run.rows.begin; row < run.rows.end; ++row) ++rows_of[size_t(group_of[size_t(row)])];
      last = run.rows.end - 1;
    }
    for (const int count : rows_of) CHECK((count == 0 || count == 16));
    finished += grant.num_rows();
    coordinator.finished(0, finished);
  }
}

/// Replicas that compute one token per tick, and a beginning that they have not met with their last rows anew.
struct TokenSimulation {
  struct Replica {
    std::vector<int64_t> held;
    int64_t clock = 0, finished = 0, prefixes = 0;
    int group = -1;
    bool waiting = false, ended = false;
  };
  std::vector<int> group_of;
  std::vector<int64_t> tokens_of;  // by row, without the beginning
  int64_t prefix_tokens = 512, window = 1 << 20;

  std::vector<Replica> run(Coordinator& coordinator, size_t num_replicas) {
    std::vector<Replica> replicas(num_replicas);
    const auto take = [&](const std::vector<Grant>& grants, int64_t now) {
      for (const Grant& grant : grants) {
        Replica& r = replicas[static_cast<size_t>(grant.replica)];
        r.waiting = false;
        r.ended = grant.num_rows() == 0;
        if (r.held.empty()) r.clock = std::max(r.clock, now);
        for (const RowRun& run : grant.runs)
          for (int64_t row = run.rows.begin; row < run.rows.end; ++row) r.held.push_back(row);
      }
    };
    for (;;) {
      size_t next = num_replicas;
      for (size_t i = 0; i < num_replicas; ++i) {
        Replica& r = replicas[i];
        while (!r.waiting && !r.ended && static_cast<int64_t>(r.held.size()) < window) {
          r.waiting = true;
          take(coordinator.request(static_cast<int>(i)), r.clock);
        }
      }
      for (size_t i = 0; i < num_replicas; ++i)
        if (!replicas[i].held.empty() && (next == num_replicas || replicas[i].clock < replicas[next].clock)) next = i;
      if (next == num_replicas) return replicas;
      Replica& r = replicas[next];
      // The window's order: the group being worked on first.
      const auto row = std::min_element(r.held.begin(), r.held.end(), [&](int64_t a, int64_t b) {
        const auto key = [&](int64_t n) { return std::pair(group_of[size_t(n)] != r.group, group_of[size_t(n)]); };
        return key(a) < key(b);
      });
      const int group = group_of[size_t(*row)];
      if (group != r.group) r.clock += prefix_tokens, ++r.prefixes;
      r.group = group;
      r.clock += tokens_of[size_t(*row)];
      r.held.erase(row);
      take(coordinator.finished(static_cast<int>(next), ++r.finished), r.clock);
    }
  }
};

double imbalance(const std::vector<TokenSimulation::Replica>& replicas) {
  int64_t most = 0, sum = 0;
  for (const auto& replica : replicas) {
    most = std::max(most, replica.clock);
    sum += replica.clock;
  }
  return static_cast<double>(most) * static_cast<double>(replicas.size()) / static_cast<double>(sum);
}

TEST_CASE("one beginning common to all rows does not hold the replicas up") {
  std::mt19937_64 random(5);
  for (const int64_t busy_rows : {16, 256}) {
    TokenSimulation simulation{.group_of = std::vector<int>(2000, 0)};
    for (int i = 0; i < 2000; ++i) simulation.tokens_of.push_back(32 + static_cast<int64_t>(random() % 200));
    Coordinator coordinator(grouped_plan(simulation.group_of), RowSet(2000), 4, {.busy_rows = busy_rows});
    const auto replicas = simulation.run(coordinator, 4);
    const double found = imbalance(replicas);
    MESSAGE("dp_imbalance with busy_rows ", busy_rows, ": ", found);
    CHECK(found <= 1.1);
    for (const auto& replica : replicas) CHECK(replica.prefixes == 1);
  }
}

TEST_CASE("when it is stopped nobody gets rows any more, neither who waits nor who asks later") {
  Coordinator coordinator(RowPlan(40), RowSet(40), 2, {.max_chunk_rows = 16, .busy_rows = 1});
  REQUIRE(coordinator.request(0).size() == 1);
  REQUIRE(coordinator.request(0).empty());  // it is busy
  CHECK(coordinator.stop() == std::vector<Grant>{{.replica = 0, .runs = {}}});
  CHECK(coordinator.request(1) == std::vector<Grant>{{.replica = 1, .runs = {}}});
  CHECK(coordinator.finished(0, 5).empty());
  CHECK(coordinator.rows_left() == 30);
}

TEST_CASE("shuffled groups are computed once or little more, and the replicas end together") {
  std::mt19937_64 random(6);
  TokenSimulation simulation{.group_of = shuffled_groups(64, 16)};
  for (int i = 0; i < 1024; ++i) simulation.tokens_of.push_back(48);
  for (const size_t common : {size_t{0}, size_t{4096}}) {
    Coordinator coordinator(grouped_plan(simulation.group_of, common), RowSet(1024), 4, {.busy_rows = 32});
    const auto replicas = simulation.run(coordinator, 4);
    int64_t prefixes = 0;
    for (const auto& replica : replicas) prefixes += replica.prefixes;
    MESSAGE("beginnings computed: ", prefixes, " of 64; dp_imbalance ", imbalance(replicas));
    CHECK(prefixes >= 64);
    CHECK(prefixes <= 72);
    CHECK(imbalance(replicas) <= 1.1);
  }
}

}  // namespace
}  // namespace tokenmill::jobs
