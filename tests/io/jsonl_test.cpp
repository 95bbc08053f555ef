#include "io/jsonl.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "io/json.h"
#include "kernels/core/error.h"
#include "tests/io/packing.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;

namespace {

struct Kept {
  int64_t line, offset, length;
  bool oversized;
  std::string bytes;
  bool operator==(const Kept&) const = default;
};

std::vector<Kept> read_all(io::RecordReader& reader) {
  std::vector<Kept> records;
  io::Record record;
  while (reader.next(record))
    records.push_back({record.line, record.offset, record.length, record.oversized, std::string(record.bytes)});
  CHECK_FALSE(reader.next(record));
  return records;
}

/// A text as a stream that returns at most `piece` bytes per read.
class TextStream final : public io::ByteStream {
 public:
  TextStream(std::string text, size_t piece) : text_(std::move(text)), piece_(piece) {}
  int64_t read(std::span<std::byte> buffer) override {
    const size_t n = std::min({piece_, buffer.size(), text_.size() - std::min(offset_, text_.size())});
    std::copy_n(reinterpret_cast<const std::byte*>(text_.data()) + offset_, n, buffer.data());
    offset_ += n;
    return static_cast<int64_t>(n);
  }
  void seek(int64_t offset) override { offset_ = static_cast<size_t>(offset); }
  bool can_jump() const override { return true; }
  const std::string& path() const override { return path_; }

 private:
  std::string text_, path_ = "text";
  size_t piece_, offset_ = 0;
};

std::vector<Kept> records_of(const std::string& text, size_t piece = 1 << 20, int64_t max_record_bytes = 1 << 20) {
  io::JsonlReader reader(std::make_unique<TextStream>(text, piece), {.max_record_bytes = max_record_bytes});
  return read_all(reader);
}

const std::string kCases = TM_TEST_DATA "/cases/";

std::vector<io::JsonValue> values_of(const std::string& name) {
  std::vector<io::JsonValue> values;
  const auto reader = io::open_records(kCases + name);
  for (const Kept& record : read_all(*reader)) values.push_back(io::parse_json(record.bytes, name));
  return values;
}

/// Lines, blank lines, long lines, CR LF and a byte-order mark, made from a seed.
std::string mixed_text(unsigned seed) {
  std::mt19937 random(seed);
  std::string text = seed % 2 ? "\xEF\xBB\xBF" : "";
  for (int i = 0; i < 60; ++i) {
    switch (random() % 6) {
      case 0:
        text += "   \t";
        break;
      case 1:
        break;
      case 2:
        text += std::string(random() % 3000, 'x');
        break;
      case 3:
        text += std::string(random() % 300, ' ');
        break;
      default:
        text += "{\"id\":" + std::to_string(random() % 100000) + "}";
    }
    text += random() % 3 == 0 ? "\r\n" : "\n";
  }
  return text + (seed % 3 ? "" : "{\"last\":1}");
}

}  // namespace

TEST_CASE("byte-order mark, CR LF, blank lines and a missing final newline do not make or change records") {
  const auto reader = io::open_records(kCases + "bom_crlf.jsonl");
  const std::vector<Kept> records = read_all(*reader);
  CHECK(records == std::vector<Kept>{{1, 3, 27, false, R"({"id":"a","prompt":"first"})"},
                                     {4, 40, 28, false, R"({"id":"b","prompt":"second"})"},
                                     {6, 71, 50, false, R"({"id":"c","prompt":"third, no newline after this"})"}});
}

TEST_CASE("files without records give none") {
  for (const char* text :
       {"", "\n", "\r\n\r\n", " \t \n\n   ", "\xEF\xBB\xBF", "\xEF\xBB\xBF\r\n", " ", "\r", "\v\f\n"}) {
    CAPTURE(text);
    CHECK(records_of(text).empty());
    CHECK(records_of(text, 1).empty());
  }
}

TEST_CASE("a byte-order mark counts only at the front of the file") {
  CHECK(records_of("\xEF\xBB").at(0).bytes == "\xEF\xBB");
  CHECK(records_of("a\n\xEF\xBB\xBF"
                   "b\n")
            .at(1)
            .bytes ==
        "\xEF\xBB\xBF"
        "b");
  CHECK(records_of("\xEF\xBB\xBF\xEF\xBB\xBF"
                   "a")
            .at(0)
            .bytes ==
        "\xEF\xBB\xBF"
        "a");
}

TEST_CASE("records do not depend on how the bytes arrive") {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const std::string text = mixed_text(seed);
    const std::vector<Kept> whole = records_of(text);
    CHECK(whole.size() > 20);
    for (size_t piece : {1u, 2u, 3u, 7u, 64u, 1000u}) {
      CAPTURE(seed);
      CAPTURE(piece);
      CHECK(records_of(text, piece) == whole);
    }
  }
}

TEST_CASE("a reader that seeks to any stored position gives the records that follow it") {
  const test::TempDir dir;
  for (unsigned seed = 0; seed < 3; ++seed) {
    const std::string text = mixed_text(seed);
    for (const std::string& path :
         {dir.write("t.jsonl", text), dir.write("t.gz", test::gzip(text.substr(0, 999)) + test::gzip(text.substr(999))),
          dir.write("t.zst", test::zstd(text))}) {
      CAPTURE(path);
      const auto reader = io::open_records(path);
      std::vector<io::RecordPosition> positions{reader->position()};
      std::vector<Kept> all;
      io::Record record;
      while (reader->next(record)) {
        all.push_back({record.line, record.offset, record.length, record.oversized, std::string(record.bytes)});
        positions.push_back(reader->position());
      }
      CHECK(all == records_of(text));
      const auto other = io::open_records(path);
      for (size_t step = 0; step < positions.size(); ++step) {
        const size_t i = step * 7 % positions.size();  // back and forth
        CAPTURE(i);
        for (io::RecordReader* r : {reader.get(), other.get()}) {
          r->seek(positions[i]);
          CHECK(r->position() == positions[i]);
          CHECK(read_all(*r) == std::vector<Kept>(all.begin() + static_cast<std::ptrdiff_t>(i), all.end()));
        }
      }
    }
  }
}

TEST_CASE("skip counts records as next does and stops at the end") {
  const std::string text = mixed_text(4);
  const std::vector<Kept> all = records_of(text);
  for (int64_t count : {0, 1, 2, 5, 1000}) {
    io::JsonlReader reader(std::make_unique<TextStream>(text, 100));
    const int64_t expected = std::min<int64_t>(count, static_cast<int64_t>(all.size()));
    CAPTURE(count);
    CHECK(reader.skip(count) == expected);
    CHECK(read_all(reader) == std::vector<Kept>(all.begin() + expected, all.end()));
  }
}

TEST_CASE("a record over the cap is reported with line and length, and the others are as if it were absent") {
  const std::string before = "{\"a\":1}\n\n", after = "\r\n{\"b\":2}\r\n";
  for (size_t length : {100u, 101u, 102u, 103u, 5000u, 1000000u}) {
    for (size_t piece : {1000u, 1u << 20}) {
      CAPTURE(length);
      CAPTURE(piece);
      const std::string text = before + std::string(length, 'x') + after;
      const bool over = length > 100;
      const std::vector<Kept> records = records_of(text, piece, 100);
      const auto size = static_cast<int64_t>(length);
      CHECK(records == std::vector<Kept>{{1, 0, 7, false, "{\"a\":1}"},
                                         {3, 9, size, over, over ? "" : std::string(length, 'x')},
                                         {4, 11 + size, 7, false, "{\"b\":2}"}});
    }
  }
  CHECK(records_of(std::string(5000, 'x'), 700, 100) == std::vector<Kept>{{1, 0, 5000, true, ""}});
  CHECK(records_of(std::string(5000, 'x') + "\r", 700, 100) == std::vector<Kept>{{1, 0, 5000, true, ""}});
  CHECK(records_of("a\n" + std::string(5000, ' ') + "\nb", 700, 100).size() == 2);  // long, but blank
}

TEST_CASE("framing does not depend on the cap") {
  for (unsigned seed = 0; seed < 4; ++seed) {
    const std::string text = mixed_text(seed);
    std::vector<Kept> whole = records_of(text);
    for (int64_t cap : {1, 10, 299, 2000}) {
      CAPTURE(cap);
      std::vector<Kept> expected = whole;
      for (Kept& record : expected)
        if (record.length > cap) record.oversized = true, record.bytes.clear();
      CHECK(records_of(text, 512, cap) == expected);
    }
  }
}

TEST_CASE("a record longer than the read buffer comes whole") {
  const test::TempDir dir;
  const std::string line(20'000'000, 'y');
  const std::string text = "first\n" + line + "\nlast\n";
  for (const std::string& path : {dir.write("t.jsonl", text), dir.write("t.zst", test::zstd(text))}) {
    const auto reader = io::open_records(path);
    const std::vector<Kept> records = read_all(*reader);
    REQUIRE(records.size() == 3);
    CHECK(records[1].bytes == line);
    CHECK(records[2] == Kept{3, 20'000'007, 4, false, "last"});
  }
}

TEST_CASE("a record that crosses gzip members is one record") {
  const std::vector<io::JsonValue> values = values_of("members.jsonl.gz");
  REQUIRE(values.size() == 3);
  CHECK(values[0].at("id").as_string() == "g1");
  CHECK(values[1].at("id").as_string() == "g2");
  CHECK(values[1].at("prompt").as_string() == "spans two members");
  CHECK(values[2].at("id").as_string() == "g3");
}

TEST_CASE("ids of bigint.jsonl come back with the same digits") {
  std::string ids;
  const std::vector<io::JsonValue> values = values_of("bigint.jsonl");
  for (const io::JsonValue& value : values) ids += to_json(value.at("id")) + " ";
  CHECK(ids == "9007199254740993 18446744073709551615 18446744073709551617 -9223372036854775808 \"0123\" 1 2 3 ");
  CHECK(values[5].at("seed").as_uint64() == 18446744073709551615u);
  CHECK_FALSE(values[6].at("max_tokens").fits_int64());
  CHECK_FALSE(values[7].at("max_tokens").fits_int64());
}

TEST_CASE("repeated keys of dupkeys.jsonl: the last value wins") {
  const std::vector<io::JsonValue> values = values_of("dupkeys.jsonl");
  REQUIRE(values.size() == 4);
  CHECK(values[0].at("prompt").as_string() == "two");
  CHECK(values[1].at("id").as_string() == "d3");
  CHECK(values[2].at("sampling").at("temperature").as_double() == 1.5);
  CHECK(values[3].at("id").as_string() == "d5");
}

TEST_CASE("surrogate.jsonl: seven records, the five with unpaired halves are refused") {
  const auto reader = io::open_records(kCases + "surrogate.jsonl");
  std::vector<std::string> prompts;
  for (const Kept& record : read_all(*reader)) {
    try {
      prompts.push_back(io::parse_json(record.bytes, "row").at("prompt").as_string());
    } catch (const Error&) {
      prompts.push_back("refused");
    }
  }
  CHECK(prompts == std::vector<std::string>{"x\xF0\x9F\x99\x82y", "refused", "refused", "refused", "refused", "refused",
                                            "still here"});
}

TEST_CASE("nul.jsonl keeps U+0000 and writes it as an escape") {
  const std::vector<io::JsonValue> values = values_of("nul.jsonl");
  REQUIRE(values.size() == 5);
  CHECK(values[0].at("prompt").as_string() == std::string("left\0right", 10));
  CHECK(values[3].at("id").as_string() == std::string("n\0"
                                                      "4",
                                                      3));
  CHECK(to_json(values[3].at("id")) == "\"n\\u00004\"");
  CHECK(values[4].at("messages").items()[0].at("content").as_string() == std::string("a\0b", 3));
}
