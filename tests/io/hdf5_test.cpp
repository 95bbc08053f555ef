// Rows of HDF5 files as records, and what is no such file.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <string>
#include <vector>

#include "io/file.h"
#include "io/record_reader.h"
#include "kernels/core/error.h"
#include "tests/io/hdf5_builder.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using test::Hdf5Builder;

namespace {

struct FileOf {
  explicit FileOf(Hdf5Builder& builder, size_t cut_bytes = 0) {
    std::string bytes = builder.bytes();
    bytes.resize(bytes.size() - cut_bytes);
    path = directory.write("rows.h5", bytes);
  }
  test::TempDir directory;
  std::string path;
};

std::vector<std::string> records(io::RecordReader& reader) {
  std::vector<std::string> out;
  io::Record record;
  while (reader.next(record)) {
    CHECK(record.oversized == record.bytes.empty());
    out.emplace_back(record.oversized ? "oversized" : record.bytes);
  }
  return out;
}

std::vector<std::string> records(const std::string& path, const io::RecordReaderOptions& options = {}) {
  return records(*io::open_records(path, options));
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("strings of an HDF5 file are the records that JSONL would hold") {
  Hdf5Builder builder;
  builder.texts("texts", {"one", "", "say \"x\"\n\\", "\xE2\x98\x83"}).texts("ids", {"a", "b", "c\"", "d"});
  builder.numbers("signed", {-1, INT64_MIN, 2, 3}).numbers("unsigned", {-1, 1, 2, 3}, H5T_STD_U64LE);
  const FileOf file(builder);
  CHECK(records(file.path + ":/texts") == Texts{R"({"prompt":"one"})", R"({"prompt":""})",
                                                R"({"prompt":"say \"x\"\u000a\\"})",
                                                "{\"prompt\":\"\xE2\x98\x83\"}"});
  CHECK(records(file.path + ":/texts", {.ids_dataset = "/ids"})[2] == R"({"id":"c\"","prompt":"say \"x\"\u000a\\"})");
  CHECK(records(file.path + ":/texts", {.ids_dataset = "/signed"})[1] == R"({"id":-9223372036854775808,"prompt":""})");
  CHECK(records(file.path + ":/texts", {.ids_dataset = "/unsigned"})[0] ==
        R"({"id":18446744073709551615,"prompt":"one"})");
}

TEST_CASE("strings of fixed length end as their padding says") {
  using namespace std::string_literals;
  Hdf5Builder builder;
  builder.chunk(2, true).fixed("null", {"a\0b"s, "12345", ""}, 5);
  builder.fixed("term", {"a\0b"s, "12345", ""}, 5, H5T_STR_NULLTERM);
  builder.fixed("space", {"a", " 2 ", ""}, 5, H5T_STR_SPACEPAD);
  const FileOf file(builder);
  CHECK(records(file.path + ":/null") ==
        Texts{R"({"prompt":"a\u0000b"})", R"({"prompt":"12345"})", R"({"prompt":""})"});
  CHECK(records(file.path + ":/term")[0] == R"({"prompt":"a"})");
  CHECK(records(file.path + ":/space") == Texts{R"({"prompt":"a"})", R"({"prompt":" 2"})", R"({"prompt":""})"});
}

TEST_CASE("a group of values and offsets holds token ids") {
  for (const bool chunked : {false, true}) {
    Hdf5Builder builder;
    if (chunked) builder.chunk(3, true);
    builder.group("tokens").numbers("tokens/values", {5, 6, 7, 8, 9}, H5T_STD_I32BE);
    builder.numbers("tokens/offsets", {0, 2, 2, 5}, H5T_STD_U64LE);
    const FileOf file(builder);
    CHECK(records(file.path + ":/tokens") == Texts{R"({"prompt_token_ids":[5,6]})", R"({"prompt_token_ids":[]})",
                                                   R"({"prompt_token_ids":[7,8,9]})"});
  }
}

TEST_CASE("an HDF5 reader goes on from any position") {
  Texts texts;
  std::vector<int64_t> ids;
  for (int i = 0; i < 20000; ++i) {
    texts.push_back("row " + std::to_string(i));
    ids.push_back(i);
  }
  Hdf5Builder builder;
  builder.chunk(1000, true).texts("texts", texts).numbers("ids", ids);
  const FileOf file(builder);
  const auto reader = io::open_records(file.path + ":/texts", {.ids_dataset = "/ids"});
  CHECK(reader->skip(12345) == 12345);
  CHECK(reader->position() == io::RecordPosition{12345, 12346});
  CHECK(reader->can_jump());
  const auto check_next = [&](int64_t row) {
    io::Record record;
    REQUIRE(reader->next(record));
    CHECK(record.bytes == fmt::format("{{\"id\":{0},\"prompt\":\"row {0}\"}}", row));
    CHECK(record.line == row + 1);
    CHECK(record.offset == row);
  };
  check_next(12345);
  for (const int64_t row : {19999, 0, 7000, 7001, 6999, 12346}) {
    reader->seek({row, row + 1});
    check_next(row);
  }
  CHECK(reader->skip(100000) == 20000 - 12347);
  io::Record record;
  CHECK_FALSE(reader->next(record));
  CHECK_FALSE(reader->next(record));
}

TEST_CASE("a value above the limit is passed over, whatever its kind") {
  const std::string long_text(100000, 'x');
  Hdf5Builder builder;
  builder.texts("texts", {"a", long_text, "b"}).texts("ids", {"1", "2", "3"});
  std::vector<int64_t> values(30000, 7);
  builder.group("tokens").numbers("tokens/values", values).numbers("tokens/offsets", {0, 1, 29999, 30000});
  const FileOf file(builder);
  const io::RecordReaderOptions options{.max_record_bytes = 2000, .ids_dataset = "/ids"};
  const auto reader = io::open_records(file.path + ":/texts", options);
  io::Record record;
  REQUIRE(reader->next(record));
  REQUIRE(reader->next(record));
  CHECK(record.oversized);
  CHECK(record.length >= 100000);
  CHECK(record.prefix.starts_with("{\"id\":\"2\","));
  REQUIRE(reader->next(record));
  CHECK(record.bytes == R"({"id":"3","prompt":"b"})");
  CHECK(records(file.path + ":/tokens", options) ==
        Texts{R"({"id":"1","prompt_token_ids":[7]})", "oversized", R"({"id":"3","prompt_token_ids":[7]})"});
}

TEST_CASE("many long strings are read a few at a time") {
  const Texts texts(300, std::string(100000, 'x'));  // 30 MB, more than a block
  Hdf5Builder builder;
  builder.texts("texts", texts);
  const FileOf file(builder);
  const Texts read = records(file.path + ":/texts");
  REQUIRE(read.size() == texts.size());
  for (const std::string& record : read) CHECK(record.size() == 100000 + 13);
}

TEST_CASE("what cannot hold prompts is an error that names it") {
  Hdf5Builder builder;
  builder.texts("texts", {"a", "b"}).numbers("numbers", {1, 2}).numbers("three", {1, 2, 3});
  builder.group("empty").group("down").numbers("down/values", {1, 2, 3}).numbers("down/offsets", {0, 2, 1, 3});
  builder.group("far").numbers("far/values", {1, 2, 3}).numbers("far/offsets", {0, 2, 4});
  builder.group("huge").numbers("huge/values", {1, 2, 3}).numbers("huge/offsets", {0, -1, 3}, H5T_STD_U64LE);
  builder.group("minus").numbers("minus/values", {1, 2, 3}).numbers("minus/offsets", {-1, 2, 3});
  builder.group("none").numbers("none/values", {1}).numbers("none/offsets", {});
  builder.numbers("doubles", {1, 2}, H5T_IEEE_F64LE).create("contiguous", H5T_STD_I64LE, 2);
  builder.chunk(1 << 20).create("never", H5T_STD_I64LE, hsize_t{1} << 50);
  const FileOf file(builder);
  const auto check = [&](const std::string& dataset, const std::string& text, const std::string& ids = "") {
    CAPTURE(dataset);
    try {
      records(file.path + dataset, {.ids_dataset = ids});
      FAIL_CHECK("no error");
    } catch (const Error& error) {
      CHECK_MESSAGE(std::string(error.what()).find(text) != std::string::npos, std::string(error.what()));
      CHECK(std::string(error.what()).starts_with(file.path));
    }
  };
  check("", "is an HDF5 file; name what in it holds the prompts");
  check(":/nothing", "the file has /contiguous, /doubles, /down (group)");
  check(":/numbers", "holds 64-bit integers; prompts must be strings, or a group with token ids");
  check(":/empty", "is a group without values");
  check(":/down", "/down/offsets: number 2 is 1; offsets must not descend and lie between 0 and 3, the size of values, and the one "
                  "before is 2");
  check(":/far", "number 2 is 4; offsets must not descend and lie between 0 and 3");
  check(":/minus", "number 0 is -1");
  check(":/huge", "number 1 is 18446744073709551615; offsets must not descend");
  check(":/none", "/none/offsets: is empty");
  check(":/texts", "has 3 ids, and", "/three");
  check(":/texts", "holds floating-point numbers; ids must be strings or integers", "/doubles");
  check(":/texts", "/nothing: cannot be opened as a dataset", "/nothing");
  check(":/texts", "not all rows were written", "/never");
  check(":/texts", "not all rows were written", "/contiguous");
}

TEST_CASE("a dataset of a filter that is not there names the filter") {
  Hdf5Builder builder;
  builder.chunk(2);
  constexpr H5Z_filter_t kUnknown = 32001;
  static const H5Z_class2_t filter = {H5Z_CLASS_T_VERS, kUnknown, 1, 1, "blosc", nullptr, nullptr,
                                      [](unsigned, size_t, const unsigned*, size_t bytes, size_t*, void**) {
                                        return bytes;
                                      }};
  TM_HDF5(H5Zregister(&filter));
  TM_HDF5(H5Pset_filter(builder.properties(), kUnknown, H5Z_FLAG_MANDATORY, 0, nullptr));
  builder.fixed("texts", {"a", "b"}, 4);
  const FileOf file(builder);
  CHECK(records(file.path + ":/texts").size() == 2);
  TM_HDF5(H5Zunregister(kUnknown));
  CHECK_THROWS_WITH_AS(records(file.path + ":/texts"), doctest::Contains("is packed with filter 32001 (blosc)"), Error);
}

TEST_CASE("a file cut short anywhere is an error") {
  Hdf5Builder builder;
  builder.texts("texts", {"a", "b"});
  const size_t size = builder.bytes().size();
  for (size_t cut = 1; cut < size; cut += cut < 64 ? 1 : 97) {
    CAPTURE(cut);
    const FileOf file(builder, cut);
    CHECK_THROWS_WITH_AS(records(file.path + ":/texts"), doctest::Contains("rows.h5"), Error);
  }
}

TEST_CASE("a file that another process has locked says what to do") {
  Hdf5Builder builder;
  builder.texts("texts", {"a"});
  const FileOf file(builder);
  const io::File locked = io::File::open_read(file.path);
  REQUIRE(::flock(locked.fd(), LOCK_EX) == 0);  // of another open file: as another process
  CHECK_THROWS_WITH_AS(records(file.path + ":/texts"), doctest::Contains("HDF5_USE_FILE_LOCKING=FALSE"), Error);
  REQUIRE(::flock(locked.fd(), LOCK_UN) == 0);
  CHECK(records(file.path + ":/texts").size() == 1);
}

TEST_CASE("a name that exists is a file, else what follows :/ is inside one") {
  const test::TempDir directory;
  const std::string odd = directory / "a:";
  CHECK(io::split_record_path("x.h5:/a/b").file == "x.h5");
  CHECK(io::split_record_path("x.h5:/a/b").dataset == "/a/b");
  CHECK(io::split_record_path("x.jsonl").dataset.empty());
  directory.write("a:/x.jsonl", "{}\n");
  CHECK(io::split_record_path(odd + "/x.jsonl").dataset.empty());
  CHECK(io::files_of({"x.h5:/a", odd + "/x.jsonl"}) == Texts{"x.h5", odd + "/x.jsonl"});
}
