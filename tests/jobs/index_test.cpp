#include "jobs/index.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "jobs/row_reader.h"
#include "kernels/core/error.h"
#include "support/temp_dir.h"

namespace tokenmill::jobs {
namespace {

std::string gzipped(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd_packed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

/// `count` records "<tag><i>" with CRLF, blank lines and a byte-order mark mixed in; lines[i] is the line of record i.
std::string framed(const std::string& tag, int count, std::vector<int64_t>* lines = nullptr) {
  std::string text = "\xEF\xBB\xBF";
  int64_t line = 1;
  for (int i = 0; i < count; ++i) {
    if (lines) lines->push_back(line);
    text += tag + std::to_string(i) + (i % 3 == 0 ? "\r\n" : "\n");
    ++line;
    if (i % 5 == 0) {
      text += "\r\n \t\n";
      line += 2;
    }
  }
  return text;
}

struct Inputs {
  test::TempDir dir;
  std::vector<std::string> paths;
  std::vector<std::string> records;  // of all rows
  std::vector<int64_t> lines;
  void add(const std::string& name, const std::string& tag, int count,
           std::string (*pack)(const std::string&) = nullptr) {
    const std::string text = framed(tag, count, &lines);
    paths.push_back(dir.write(name, pack ? pack(text) : text));
    for (int i = 0; i < count; ++i) records.push_back(tag + std::to_string(i));
  }
};

void check_row(RowReader& reader, const Inputs& inputs, int64_t row, const std::string& file) {
  RecordSource source;
  const std::string_view record = reader.read(row, source);
  CHECK(record == inputs.records[static_cast<size_t>(row)]);
  CHECK(source.row == row);
  CHECK(source.line == inputs.lines[static_cast<size_t>(row)]);
  CHECK(source.file == file);
}

TEST_CASE("rows of plain, gzip and zstd files are found by number, in any order, with their file and line") {
  Inputs inputs;
  inputs.add("a.jsonl", "a", 3000);
  inputs.add("none.jsonl", "x", 0);
  inputs.add("b.jsonl.gz", "b", 1024, gzipped);
  inputs.add("c.jsonl.zst", "c", 1025, zstd_packed);
  inputs.add("d.jsonl", "d", 1);
  std::filesystem::create_directory(inputs.dir / "scratch");
  for (const bool unpacks : {true, false}) {
    CAPTURE(unpacks);
    const Index built =
        build_index(inputs.paths, {.reader = {}, .scratch_dir = unpacks ? inputs.dir / "scratch" : std::string()});
    const Index index = Index::deserialize(built.serialize());
    REQUIRE(index.num_rows() == 5050);
    CHECK(index.num_rows(0) == 3000);
    CHECK(index.num_rows(1) == 0);
    CHECK(index.num_rows(4) == 1);
    CHECK(index.files()[2].can_jump == unpacks);
    for (const InputFile& file : index.files()) CHECK_NOTHROW(check_as_indexed(file));
    RowReader forward(index);
    for (int64_t row = 0; row < 5050; ++row)
      check_row(forward, inputs, row, inputs.paths[row < 3000 ? 0 : row < 4024 ? 2 : row < 5049 ? 3 : 4]);
    RowReader jumping(index);
    for (const int64_t row : {5049, 4999, 3000, 0, 1023, 1024, 2047, 2046, 2048, 4023, 4024, 5048, 5047})
      check_row(jumping, inputs, row, inputs.paths[row < 3000 ? 0 : row < 4024 ? 2 : row < 5049 ? 3 : 4]);
  }
}

TEST_CASE("a row is read from the position that the index pass saw, in any order") {
  Inputs inputs;
  inputs.add("a.jsonl", "a", 1500);
  inputs.add("b.jsonl.gz", "b", 700, gzipped);
  std::filesystem::create_directory(inputs.dir / "scratch");
  std::vector<io::RecordPosition> positions;
  const Index index = build_index(inputs.paths, {.scratch_dir = inputs.dir / "scratch", .on_record = [&](const IndexedRecord& record) {
                                                   CHECK(record.row == static_cast<int64_t>(positions.size()));
                                                   CHECK(record.bytes == inputs.records[positions.size()]);
                                                   positions.push_back(record.position);
                                                 }});
  REQUIRE(positions.size() == 2200);
  RowReader reader(index);
  for (const int64_t row : {1499, 1500, 2199, 0, 1, 700, 1499, 1501, 3, 2, 1023, 1024}) {
    RecordSource source;
    CHECK(reader.read(row, source, positions[static_cast<size_t>(row)]) == inputs.records[static_cast<size_t>(row)]);
    CHECK(source.line == inputs.lines[static_cast<size_t>(row)]);
    CHECK(source.row == row);
  }
}

TEST_CASE("the framing of case 1 gives three rows") {
  const Index index = build_index({std::string(TM_TEST_DATA) + "/cases/bom_crlf.jsonl"}, {});
  CHECK(index.num_rows() == 3);
  RowReader reader(index);
  RecordSource source;
  CHECK(reader.read(2, source).find("\"c\"") != std::string::npos);
  CHECK(source.line == 6);
  CHECK(reader.read(0, source).substr(0, 9) == "{\"id\":\"a\"");
}

TEST_CASE("a place is at most 1,023 rows before the row asked for") {
  Inputs inputs;
  inputs.add("a.jsonl", "a", 5000);
  const Index index = build_index(inputs.paths, {});
  CHECK(index.locate(0).row == 0);
  CHECK(index.locate(1023).row == 0);
  CHECK(index.locate(1024).row == 1024);
  CHECK(index.locate(4999).row == 4096);
  CHECK_THROWS_AS(index.locate(5000), Error);
  CHECK_THROWS_AS(index.locate(-1), Error);
}

TEST_CASE("the index of a million rows takes a few kilobytes") {
  const test::TempDir dir;
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "{}\n";
  const Index index = build_index({dir.write("m.jsonl", text)}, {});
  CHECK(index.num_rows() == 1'000'000);
  CHECK(index.serialize().size() < 20'000);
}

TEST_CASE("a record over the limit is counted as a row and reported with its length") {
  const test::TempDir dir;
  const io::RecordReaderOptions limit{.max_record_bytes = 100};
  const Index index =
      build_index({dir.write("in.jsonl", "{\"a\":1}\n" + std::string(5000, 'x') + "\n{\"b\":1}\n")}, {.reader = limit});
  REQUIRE(index.num_rows() == 3);
  RowReader reader(index, limit);
  RecordSource source;
  CHECK(reader.read(1, source).empty());
  CHECK(source.oversized_bytes == 5000);
  CHECK(reader.read(2, source) == "{\"b\":1}");
  CHECK(source.oversized_bytes == 0);
}

TEST_CASE("inputs that are missing, directories or no files are named") {
  const test::TempDir dir;
  CHECK_THROWS_WITH_AS(build_index({dir / "none.jsonl"}, {}), doctest::Contains("none.jsonl does not exist"), Error);
  CHECK_THROWS_WITH_AS(build_index({dir.path()}, {}), doctest::Contains("is a directory; name its files"), Error);
  CHECK_THROWS_WITH_AS(build_index({"/dev/null"}, {}), doctest::Contains("/dev/null is a terminal or another device"),
                       Error);
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);  // opening it would wait for a writer
  CHECK_THROWS_WITH_AS(build_index({dir / "pipe"}, {}),
                       doctest::Contains("pipe is a pipe; inputs are read more than once"), Error);
}

TEST_CASE("an input that changed after it was indexed is found out") {
  const test::TempDir dir;
  const std::string path = dir.write("in.jsonl", framed("a", 10));
  const Index index = build_index({path}, {});
  dir.write("in.jsonl", framed("a", 9));
  RowReader reader(index);
  RecordSource source;
  CHECK_THROWS_WITH_AS(reader.read(0, source), doctest::Contains("must not change while the job runs"), Error);
  CHECK_THROWS_WITH_AS(check_as_indexed(index.files()[0]), doctest::Contains("but had "), Error);
  std::filesystem::remove(path);
  CHECK_THROWS_WITH_AS(check_as_indexed(index.files()[0]), doctest::Contains("cannot be found"), Error);
}

TEST_CASE("an input that is written to with the same length is found out by its time of change") {
  const test::TempDir dir;
  const std::string path = dir.write("in.jsonl", framed("a", 10));
  const auto later = std::filesystem::last_write_time(path) + std::chrono::nanoseconds(100);
  Index index = build_index({path}, {});
  index.watch_files();
  RowReader reader(index);
  RecordSource source;
  (void)reader.read(0, source);
  CHECK_NOTHROW(reader.check_unchanged());
  dir.write("in.jsonl", framed("b", 10));
  std::filesystem::last_write_time(path, later);
  CHECK_THROWS_WITH_AS(reader.check_unchanged(), doctest::Contains("in.jsonl was written to while the job ran"), Error);
  CHECK_NOTHROW(RowReader(index).check_unchanged());  // has read nothing
}

TEST_CASE("a damaged packed input is named and leaves no scratch file") {
  const test::TempDir dir;
  std::string packed = gzipped(framed("a", 3000));
  packed.resize(packed.size() / 2);
  const std::string path = dir.write("in.jsonl.gz", packed);
  std::filesystem::create_directory(dir / "scratch");
  CHECK_THROWS_WITH_AS(build_index({path}, {.reader = {}, .scratch_dir = dir / "scratch"}),
                       doctest::Contains("unpacking "), Error);
  CHECK(std::filesystem::is_empty(dir / "scratch"));
}

TEST_CASE("index bytes that are cut off or too long are refused") {
  const test::TempDir dir;
  const std::string bytes = build_index({dir.write("in.jsonl", framed("a", 2000))}, {}).serialize();
  for (size_t size = 0; size < bytes.size(); ++size) CHECK_THROWS_AS(Index::deserialize(bytes.substr(0, size)), Error);
  CHECK_THROWS_AS(Index::deserialize(bytes + "x"), Error);
}

TEST_CASE("whether a packed file has room is known before it is unpacked") {
  const test::TempDir dir;
  const std::string text = framed("a", 30000), path = dir.write("in.jsonl.gz", gzipped(text));
  const auto bytes = static_cast<int64_t>(text.size());
  CHECK_NOTHROW(check_room_to_unpack(path, "out/scratch", bytes));
  CHECK_NOTHROW(check_room_to_unpack(path, "out/scratch", int64_t{1} << 40));
  const std::string expected =
      "must be unpacked to out/scratch, where " + std::to_string(bytes - 1) + " bytes are free, fewer than it has";
  CHECK_THROWS_WITH_AS(check_room_to_unpack(path, "out/scratch", bytes - 1), doctest::Contains(expected.c_str()),
                       Error);
}

}  // namespace
}  // namespace tokenmill::jobs
