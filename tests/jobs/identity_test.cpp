#include "jobs/journal/identity.h"

#include <doctest/doctest.h>

#include <string>

#include "io/file_digest.h"
#include "kernels/core/error.h"
#include "support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

TEST_CASE("an identity comes back from its text, whatever its values hold") {
  const Identity identity({{"seed", "0"}, {"kwargs", "{\"a\": \"b: c\"}"}, {"lines", "one\ntwo\\n\\three"}, {"empty", ""}});
  const std::string text = identity.text();
  CHECK(text.find("\nseed: 0\n") != std::string::npos);
  CHECK(Identity::parse(text, "x").facts() == identity.facts());
  CHECK(*identity.find("seed") == "0");
  CHECK(identity.find("date") == nullptr);
}

TEST_CASE("any changed byte of the text, and any missing one, is found out") {
  const std::string text = Identity({{"seed", "0"}, {"date", "2026-11-30"}}).text();
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    CHECK_THROWS_WITH_AS(Identity::parse(damaged, "out/journal/identity"), doctest::Contains("out/journal/identity is damaged"), Error);
    CHECK_THROWS_AS(Identity::parse(text.substr(0, i), "x"), Error);
  }
}

TEST_CASE("differences are named with the old and the new value, at most three of them") {
  const Identity old({{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}});
  CHECK(old.difference_from(old).empty());
  CHECK(Identity({{"b", "2"}, {"a", "1"}, {"d", "4"}, {"c", "3"}}).difference_from(old).empty());
  CHECK(Identity({{"a", "1"}, {"b", "9"}, {"c", "3"}, {"e", "5"}}).difference_from(old) ==
        "b was 2 and is 9; e was not there and is 5; d was 4 and is gone");
  CHECK(Identity().difference_from(old) == "a was 1 and is gone; b was 2 and is gone; c was 3 and is gone; and 1 more");
}

TEST_CASE("an input's part tells size, time, beginning and end apart") {
  const test::TempDir dir;
  const auto digest_of = [&](const std::string& bytes) { return io::file_digest(dir.write("x", bytes)); };
  std::string bytes(5 << 20, 'x');
  const std::string before = digest_of(bytes);
  CHECK(before.starts_with("5242880 bytes, "));
  for (const size_t at : {size_t{0}, size_t{1} << 19, bytes.size() - 1}) {
    std::string other = bytes;
    other[at] = 'y';
    CHECK(digest_of(other) != before);
  }
  CHECK(digest_of(bytes + "x") != before);
  CHECK(digest_of("").starts_with("0 bytes, "));
  const Identity identity = job_identity({{"seed", "0"}}, {dir / "x"});
  CHECK(identity.find("input 1")->starts_with(dir / "x" + ", changed 20"));
}

TEST_CASE("an input of other name or time, but the same bytes, is said to be that") {
  const test::TempDir dir;
  const std::string path = dir.write("a, changed b", "rows");
  const Identity before = job_identity({}, {path});
  dir.write("a, changed b", "rows");
  const Identity touched = job_identity({}, {path});
  const Identity other_name = job_identity({}, {dir.write("y", "rows")});
  dir.write("a, changed b", "ROWS");
  const Identity changed = job_identity({}, {path});
  for (const Identity& same : {touched, other_name})
    CHECK(same.difference_from(before).ends_with(" (as large, and with the same digest)"));
  CHECK(changed.difference_from(before).find("digest") == std::string::npos);
}

}  // namespace
}  // namespace tokenmill::jobs
