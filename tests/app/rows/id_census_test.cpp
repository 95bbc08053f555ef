#include "app/rows/id_census.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tests/app/rows/rows_fixture.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using namespace tokenmill::rows;
using namespace tokenmill::test;

TEST_CASE("a custom_id that an earlier row has is an error; repeated native ids are counted") {
  const std::string first = R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x"}})";
  const std::string again = R"({"url":"/v1/completions","custom_id":"\u0061","body":{"prompt":"y"}})";
  IdCensus census;
  census.begin("");
  census.add(0, first);
  census.add(1, R"({"id":"a","prompt":"x"})");
  census.add(2, again);
  census.add(3, R"({"id":"a","prompt":"y"})");
  census.add(4, R"({"prompt":"y"})");
  census.add(5, R"({"id":1,"prompt":"y"})");
  census.add(6, R"({"id":"1","prompt":"y"})");
  census.finish();
  CHECK(census.num_repeated_ids() == 1);
  CHECK(census.repeated_custom_ids() == std::unordered_map<int64_t, int64_t>{{2, 0}});
  CHECK(IdCensus::deserialize(census.serialize()) == census.repeated_custom_ids());
  CodecOptions with = options();
  with.repeated_custom_ids = census.repeated_custom_ids();
  const Codec c = codec(with);
  CHECK_FALSE(encode(c, first, 0)->error);
  const auto item = encode(c, again, 2);
  REQUIRE(item->error);
  CHECK(item->error->message == "in.jsonl:3: custom_id \"a\" is that of row 0 too; it must be unique");
}

TEST_CASE("ids that memory does not hold are compared all the same, and leave no file") {
  constexpr int64_t kRows = 700'000;  // more than two buffers
  const test::TempDir dir;
  IdCensus census;
  census.begin(dir.path());
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t id = row == 600'000 || row == 650'000 ? 5 : row;
    census.add(row, R"({"custom_id":"c)" + std::to_string(id) + R"(","url":"u","body":{}})");
    census.add(row, R"({"id":)" + std::to_string(row % 690'000) + R"(,"prompt":"x"})");
  }
  CHECK_FALSE(std::filesystem::is_empty(dir.path()));
  census.finish();
  CHECK(census.num_repeated_ids() == 10'000);
  CHECK(census.repeated_custom_ids() == std::unordered_map<int64_t, int64_t>{{600'000, 5}, {650'000, 5}});
  CHECK(std::filesystem::is_empty(dir.path()));
}
