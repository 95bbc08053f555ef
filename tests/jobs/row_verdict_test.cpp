#include "jobs/row_verdict.h"

#include <doctest/doctest.h>

namespace tokenmill::jobs {
namespace {

TEST_CASE("a row that a process died of is tried alone, and refused the second time unless it is tried again") {
  RowSet done(10), tried_again(10);
  done.insert(2);
  tried_again.insert(7);
  const RowVerdict verdict =
      judge_rows({{1, {1, "signal 11"}}, {2, {2, "signal 6"}}, {4, {2, "no progress"}}, {7, {3, "signal 8"}}, {10, {1, "x"}}},
                 done, tried_again);
  CHECK(verdict.suspects == std::vector<int64_t>{1, 7});  // 2 is done, 10 is no row
  REQUIRE(verdict.refused.size() == 1);
  CHECK(verdict.refused.at(4).find("died 2 times, the last time of: no progress") != std::string::npos);
}

TEST_CASE("refused rows travel between ranks as they are") {
  const RefusedRows refused{{3, "it died of: signal 11; try again"}, {12345678901, "two words"}};
  CHECK(deserialize_refused(serialize(refused)) == refused);
  CHECK(deserialize_refused(serialize({})).empty());
}

TEST_CASE("of many suspects the first are named") {
  CHECK(describe_suspects({4, 7}).starts_with("2 rows were being computed when a process died (4, 7); "));
  CHECK(describe_suspects({0, 1, 2, 3, 4, 5, 6, 7, 8}).find("(0, 1, 2, 3, 4, 5, 6, 7, ...)") != std::string::npos);
}

}  // namespace
}  // namespace tokenmill::jobs
