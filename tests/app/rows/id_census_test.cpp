#include "app/rows/id_census.h"

#include <doctest/doctest.h>

#include "tests/app/rows/rows_fixture.h"

using namespace tokenmill;
using namespace tokenmill::rows;
using namespace tokenmill::test;

TEST_CASE("a custom_id that an earlier row has is an error; repeated native ids are counted") {
  const std::string first = R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":"x"}})";
  const std::string again = R"({"url":"/v1/completions","custom_id":"\u0061","body":{"prompt":"y"}})";
  IdCensus census;
  census.add(0, first);
  census.add(1, R"({"id":"a","prompt":"x"})");
  census.add(2, again);
  census.add(3, R"({"id":"a","prompt":"y"})");
  census.add(4, R"({"prompt":"y"})");
  census.add(5, R"({"id":1,"prompt":"y"})");
  census.add(6, R"({"id":"1","prompt":"y"})");
  CHECK(census.num_repeated_ids() == 1);
  CHECK(census.repeated_custom_ids() == std::unordered_map<int64_t, int64_t>{{2, 0}});
  CHECK(IdCensus::deserialize(census.serialize()) == census.repeated_custom_ids());
  CHECK(census.complete());
  CodecOptions with = options();
  with.repeated_custom_ids = census.repeated_custom_ids();
  const Codec c = codec(with);
  CHECK_FALSE(encode(c, first, 0)->error);
  const auto item = encode(c, again, 2);
  REQUIRE(item->error);
  CHECK(item->error->message == "in.jsonl:3: custom_id \"a\" is that of row 0 too; it must be unique");
}

TEST_CASE("the census stops at its limit and says so") {
  IdCensus census(3);
  for (int i = 0; i < 5; ++i) census.add(i, R"({"id":)" + std::to_string(i) + "}");
  CHECK_FALSE(census.complete());
}

TEST_CASE("the hash set holds what it was given across growth") {
  HashSet64 set;
  for (uint64_t i = 0; i < 5000; ++i) CHECK(set.insert(i * 0x9e3779b97f4a7c15u));
  for (uint64_t i = 0; i < 5000; ++i) CHECK_FALSE(set.insert(i * 0x9e3779b97f4a7c15u));
  CHECK(set.size() == 5000);
}
