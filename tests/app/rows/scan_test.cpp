#include "app/rows/scan.h"

#include <doctest/doctest.h>

#include <string>

using namespace tokenmill::rows;

TEST_CASE("scanning finds members in whole and damaged records") {
  const std::string_view record = R"( { "a" : "x\"}" , "id": 12 ,"n":{"id":[1,"]"]},"id" : "z" } )";
  CHECK(scan_member(record, "id") == "\"z\"");
  CHECK(scan_member(record, "a") == R"("x\"}")");
  CHECK(scan_member(record, "n") == R"({"id":[1,"]"]})");
  CHECK(scan_member(record, "b").empty());
  CHECK(scan_member(R"({"id":"r1","prompt":"cut short)", "id") == "\"r1\"");
  CHECK(scan_member(R"({"id":"r1)", "id").empty());
  CHECK(scan_member("[1]", "id").empty());
  CHECK(prompt_bytes(R"({"id":1,"prompt":"ab\nc","x":2})") == R"(ab\nc)");
  CHECK(prompt_bytes(R"({"custom_id":"a","body":{"model":"m","messages":[{"role":"u"}]}})") == R"([{"role":"u"}])");
  CHECK(prompt_bytes("no json").empty());
  std::string deep;
  for (int i = 0; i < 300'000; ++i) deep += R"({"body":)";
  deep += R"({"prompt":"x"})" + std::string(300'000, '}');
  CHECK(prompt_bytes(deep).empty());
  for (size_t length = 0; length <= record.size(); ++length) scan_member(record.substr(0, length), "id");  // no crash
}
