#include "jobs/control.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/mpi.h"

namespace tokenmill::jobs {
namespace {

parallel::FatalPolicy policy() {
  return {.exit_code = [](ErrorKind) { return 1; },
          .print = [](const Error& e) { std::fprintf(stderr, "%s\n", e.what()); }};
}

std::vector<int> every_rank(int num_ranks) {
  std::vector<int> ranks(static_cast<size_t>(num_ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Coordinator all_rows(int64_t num_rows, int num_replicas) {
  return Coordinator(RowPlan(num_rows), RowSet(num_rows), num_replicas, {.max_chunk_rows = 16, .busy_rows = 1000});
}

/// Leaders pull and work, each rank at its own speed; the others wait for the end.
void check_pulls(parallel::MpiSession& session, const std::vector<int>& leaders, int64_t rows) {
  CAPTURE(leaders.size());
  CAPTURE(rows);
  const parallel::Comm& world = session.world();
  const bool leads = std::find(leaders.begin(), leaders.end(), world.rank()) != leaders.end();
  const parallel::Comm pulled_once = world.split(leads ? 1 : 0, world.rank());
  std::string mine;
  int64_t finished = 0;
  std::vector<ReplicaStatus> last;
  {
    ControlOptions options{.status_s = 0.01, .progress_s = 0.02};
    options.on_progress = [&](const std::vector<ReplicaStatus>& statuses, double) { last = statuses; };
    Control control(session, leaders, options, all_rows(rows, static_cast<int>(leaders.size())));
    bool all_have_rows = rows < 1000;  // of many rows each gets its first before anyone is done
    while (const auto runs = leads ? control.pull() : std::nullopt) {
      if (!std::exchange(all_have_rows, true)) parallel::agree(pulled_once, std::nullopt);
      for (const RowRun& run : *runs) {
        for (int64_t row = run.rows.begin; row < run.rows.end; ++row) mine += std::to_string(row) + " ";
        finished += run.rows.size();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200 * (world.rank() + 1)));
      control.publish({.rows_finished = finished, .rows_failed = world.rank()});
    }
    control.finish();
  }
  std::vector<int64_t> seen;
  for (const std::string& text : parallel::gather_bytes(world, mine))
    for (size_t at = 0; at < text.size(); at = text.find(' ', at) + 1) seen.push_back(std::stoll(text.substr(at)));
  std::sort(seen.begin(), seen.end());
  std::vector<int64_t> expected(static_cast<size_t>(rows));
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(seen == expected);
  if (world.rank() != 0) return;
  REQUIRE(last.size() == leaders.size());  // the last call knows everyone's final status
  int64_t sum = 0;
  for (const ReplicaStatus& status : last) sum += status.rows_finished;
  CHECK(sum == rows);
  for (size_t replica = 0; rows == 1000 && replica < leaders.size(); ++replica) {  // nobody was without work
    CHECK(last[replica].rows_finished > 0);
    CHECK(last[replica].rows_failed == leaders[replica]);
  }
}

TEST_CASE("all leaders pull until nothing is left: every row once, nobody without work") {
  parallel::MpiSession session(policy());
  const int num_ranks = session.world().size();
  std::vector<int> every_second;
  for (int rank = 0; rank < num_ranks; rank += 2) every_second.push_back(rank);
  for (const int64_t rows : {0, 1, 3, 1000}) {
    check_pulls(session, every_rank(num_ranks), rows);
    check_pulls(session, every_second, rows);
    check_pulls(session, {0}, rows);
  }
}

std::set<std::string> thread_ids() {
  std::set<std::string> ids;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    ids.insert(entry.path().filename().string());
  }
  return ids;
}

double cpu_seconds_of(const std::string& thread_id) {
  int64_t on_cpu_ns = 0;
  std::ifstream("/proc/self/task/" + thread_id + "/schedstat") >> on_cpu_ns;
  return static_cast<double>(on_cpu_ns) * 1e-9;
}

TEST_CASE("an idle control thread costs next to nothing") {
  parallel::MpiSession session(policy());
  const std::set<std::string> others = thread_ids();  // ours and MPI's, whose cost is another matter
  Control control(session, every_rank(session.world().size()), {}, all_rows(100, session.world().size()));
  std::set<std::string> own = thread_ids();
  for (const std::string& id : others) own.erase(id);
  REQUIRE(own.size() == 1);
  REQUIRE(control.pull());
  const double before_s = cpu_seconds_of(*own.begin());
  CHECK(before_s > 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(cpu_seconds_of(*own.begin()) - before_s < 0.05);
  parallel::agree(session.world(), std::nullopt);
  control.finish();
}

}  // namespace
}  // namespace tokenmill::jobs
