#include "jobs/row_plan.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "jobs/row_set.h"
#include "kernels/core/error.h"
#include "support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

/// Row i starts at offset 10 * i, line 2 * i + 1.
RowPlan plan_of(const std::vector<std::string>& prompts, const RowPlannerOptions& options) {
  RowPlanner planner(options);
  for (size_t i = 0; i < prompts.size(); ++i)
    planner.add({.offset = static_cast<int64_t>(10 * i), .line = static_cast<int64_t>(2 * i + 1)}, prompts[i]);
  RowPlan plan = planner.finish();
  CHECK(planner.seconds() > 0);
  CHECK(plan.num_rows() == static_cast<int64_t>(prompts.size()));
  return plan;
}

std::vector<int64_t> rows_of(RowPlan& plan) {
  std::vector<int64_t> rows;
  for (int64_t place = 0; place < plan.num_rows(); ++place) {
    const PlannedRow planned = plan.at(place);
    rows.push_back(planned.row);
    if (planned.position.offset < 0) {
      CHECK(planned.row == place);
      CHECK(planned.shared == 0);
      continue;
    }
    CHECK(planned.position == io::RecordPosition{.offset = 10 * planned.row, .line = 2 * planned.row + 1});
  }
  return rows;
}

TEST_CASE("a job that fits in a window is ordered as a whole and makes no file") {
  RowPlan plan = plan_of({"a", "b", "a", "c", "b", "a"}, {.spill_path = "/nowhere/at/all"});
  CHECK(plan.num_windows() == 1);
  CHECK(rows_of(plan) == std::vector<int64_t>{0, 2, 5, 1, 4, 3});
  CHECK(plan.at(1).shared == 1);
  CHECK(plan.at(3).shared == 0);
}

TEST_CASE("larger jobs are ordered window by window; those out of memory come from a file") {
  const test::TempDir dir;
  RowPlan plan = plan_of({"a", "b", "a", "b",  // ordered
                          "c", "d", "e", "f",  // as they are
                          "b", "a", "a", "b",  // ordered
                          "x", "x"},           // as they are, sharing
                         {.max_rows = 4, .spill_path = dir / "plan"});
  CHECK(plan.num_windows() == 4);
  CHECK(std::filesystem::exists(dir / "plan"));
  CHECK(rows_of(plan) == std::vector<int64_t>{0, 2, 1, 3, 4, 5, 6, 7, 8, 11, 9, 10, 12, 13});
  CHECK(plan.at(13).shared == 1);
  CHECK_THROWS_AS(plan.at(0), Error);  // gone
}

TEST_CASE("the number of fingerprints bounds a window too") {
  const test::TempDir dir;
  const std::string long_prompt(5000, 'x');
  RowPlan plan = plan_of({long_prompt, long_prompt, long_prompt, long_prompt},
                         {.max_fingerprints = 30, .spill_path = dir / "plan"});
  CHECK(plan.num_windows() == 2);
  CHECK(rows_of(plan) == std::vector<int64_t>{0, 1, 2, 3});
}

TEST_CASE("a plan that cannot be kept is an error that names the file") {
  CHECK_THROWS_WITH_AS(plan_of({"a", "a", "a", "a"}, {.max_rows = 2, .spill_path = "/nowhere/plan"}),
                       doctest::Contains("/nowhere/plan"), Error);
}

TEST_CASE("a plan without an order has all rows in one window") {
  RowPlan plan(3);
  CHECK(rows_of(plan) == std::vector<int64_t>{0, 1, 2});
  CHECK(RowPlan(0).num_windows() == 0);
  CHECK_THROWS_AS(RowPlan(0).at(0), Error);
}

TEST_CASE("a row set counts each row once") {
  RowSet rows(130);
  for (const int64_t row : {0, 63, 64, 129, 64}) rows.insert(row);
  CHECK(rows.count() == 4);
  CHECK(rows.contains(129));
  CHECK_FALSE(rows.contains(128));
  CHECK_THROWS_AS(rows.insert(130), Error);
}

}  // namespace
}  // namespace tokenmill::jobs
