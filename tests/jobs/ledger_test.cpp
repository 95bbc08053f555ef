#include "jobs/journal/ledger.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "io/file.h"
#include "kernels/core/error.h"
#include "support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

LedgerEntry entry(int64_t i) {
  return {.row = i * 7,
          .offset = i * 100,
          .length = 100,
          .record_digest = ~static_cast<uint64_t>(i),
          .row_digest = static_cast<uint64_t>(i) << 40,
          .failed = i % 3 == 0,
          .partial = i % 5 == 0};
}

std::string write_ledger(const test::TempDir& dir, int64_t count) {
  LedgerWriter writer(dir / "x.ledger");
  for (int64_t i = 0; i < count; ++i) {
    writer.append(entry(i));
    if (i % 1000 == 999) writer.flush();
  }
  writer.close();
  return io::read_file(dir / "x.ledger", 1 << 30);
}

TEST_CASE("entries come back as they were appended") {
  const test::TempDir dir;
  const std::string bytes = write_ledger(dir, 5000);
  CHECK(bytes.size() == 64 + 5000 * 48);
  CHECK(bytes.substr(0, 8) == "TMLEDGER");
  const LedgerReader reader(dir / "x.ledger");
  REQUIRE(reader.num_entries() == 5000);
  CHECK(reader.torn_bytes() == 0);
  std::vector<LedgerEntry> entries(4900);
  reader.read(50, entries);
  for (int64_t i = 0; i < 4900; ++i) CHECK(entries[static_cast<size_t>(i)] == entry(i + 50));
}

TEST_CASE("a ledger cut at any byte counts its whole entries and knows the rest as torn") {
  const test::TempDir dir;
  const std::string bytes = write_ledger(dir, 4);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    CAPTURE(size);
    const LedgerReader reader(dir.write("cut.ledger", bytes.substr(0, size)));
    const int64_t whole = size < 64 ? 0 : (static_cast<int64_t>(size) - 64) / 48;
    CHECK(reader.num_entries() == whole);
    CHECK(reader.torn_bytes() == (size < 64 ? static_cast<int64_t>(size) : (static_cast<int64_t>(size) - 64) % 48));
  }
}

TEST_CASE("bad entries at the end are torn, also blocks of zeros") {
  const test::TempDir dir;
  std::string bytes = write_ledger(dir, 10);
  bytes[64 + 9 * 48 + 5] ^= 1;
  CHECK(LedgerReader(dir.write("a.ledger", bytes)).num_entries() == 9);
  bytes += std::string(480, '\0');
  const LedgerReader reader(dir.write("b.ledger", bytes));
  CHECK(reader.num_entries() == 9);
  CHECK(reader.torn_bytes() == 48 + 480);
}

TEST_CASE("a first flush whose first page was lost has no entries; behind more than one flush that is damage") {
  const test::TempDir dir;
  const auto without_page = [&](int64_t count) {
    std::string bytes = write_ledger(dir, count);
    std::fill_n(bytes.begin(), std::min<size_t>(4096, bytes.size()), '\0');
    std::filesystem::remove(dir / "x.ledger");
    return dir.write("holes.ledger", bytes);
  };
  for (const int64_t count : {0, 1, 1000}) {
    const LedgerReader reader(without_page(count));
    CHECK(reader.num_entries() == 0);
    CHECK(reader.torn_bytes() == 64 + count * 48);
  }
  CHECK_THROWS_WITH_AS(LedgerReader(without_page(2000)), doctest::Contains("is not a ledger of tokenmill"), Error);
}

TEST_CASE("any flipped bit in what the last flush wrote tears the ledger there: pages may reach the disk in any order") {
  const test::TempDir dir;
  const std::string bytes = write_ledger(dir, 3);
  for (size_t at = 64; at < 64 + 3 * 48; ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    CHECK(LedgerReader(dir.write("bad.ledger", damaged)).num_entries() == static_cast<int64_t>(at - 64) / 48);
  }
}

TEST_CASE("a flipped bit before the last flush is damage that names its entry") {
  const test::TempDir dir;
  std::string bytes = write_ledger(dir, 1100);
  bytes[64 + 75 * 48 + 11] ^= 4;
  const LedgerReader reader(dir.write("bad.ledger", bytes));
  REQUIRE(reader.num_entries() == 1100);
  std::vector<LedgerEntry> entries(1100);
  CHECK_THROWS_WITH_AS(reader.read(0, entries), doctest::Contains("entry 75 of 1100 is damaged"), Error);
}

TEST_CASE("an entry in another's place is a bad one") {
  const test::TempDir dir;
  std::string bytes = write_ledger(dir, 3);
  bytes.replace(64 + 48, 48, bytes.substr(64, 48));
  CHECK(LedgerReader(dir.write("moved.ledger", bytes)).num_entries() == 1);
}

TEST_CASE("a damaged header, another version and another kind of file are told apart") {
  const test::TempDir dir;
  std::string bytes = write_ledger(dir, 3);
  std::string other = bytes;
  other[0] = 'X';
  CHECK_THROWS_WITH_AS(LedgerReader(dir.write("1", other)), doctest::Contains("is not a ledger"), Error);
  other = bytes;
  other[30] = 1;  // reserved
  CHECK_THROWS_WITH_AS(LedgerReader(dir.write("2", other)), doctest::Contains("header is damaged"), Error);
  other = bytes;
  other[8] = 3;  // the version, with a checksum that fits
  const uint64_t checksum = digest(std::string_view(other).substr(0, 56));
  other.replace(56, 8, reinterpret_cast<const char*>(&checksum), 8);
  CHECK_THROWS_WITH_AS(LedgerReader(dir.write("3", other)), doctest::Contains("version 3"), Error);
}

TEST_CASE("a ledger is never written over an existing one") {
  const test::TempDir dir;
  write_ledger(dir, 1);
  CHECK_THROWS_AS(LedgerWriter(dir / "x.ledger"), Error);
}

}  // namespace
}  // namespace tokenmill::jobs
