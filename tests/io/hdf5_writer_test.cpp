// Columns of an HDF5 file: what is written is read back, and a file is complete or absent.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "io/file.h"
#include "io/hdf5_dataset.h"
#include "io/hdf5_writer.h"
#include "io/record_reader.h"
#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;

#ifdef __SANITIZE_ADDRESS__
/// The library keeps a kilobyte of a file that it failed to write when it is closed.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }
#endif

namespace {

std::vector<int64_t> integers(const std::string& path, const std::string& name) {
  const io::Hdf5Id file = io::open_hdf5(path);
  const io::Hdf5Dataset dataset(file, name, name);
  std::vector<int64_t> values(static_cast<size_t>(dataset.size()));
  dataset.read(0, dataset.size(), H5T_NATIVE_INT64, values.data());
  return values;
}

std::vector<std::string> texts(const std::string& path, const std::string& name) {
  const auto reader = io::open_records(path + ":" + name);
  std::vector<std::string> out;
  for (io::Record record; reader->next(record);) out.emplace_back(record.bytes);
  return out;
}

bool is_empty(const test::TempDir& dir) { return std::filesystem::is_empty(dir.path()); }

/// Bytes that do not pack.
void fill(io::Hdf5Writer& writer) {
  auto& column = writer.numbers<int64_t>("/noise", "noise");
  auto& words = writer.texts("/texts", "noise");
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    column.append(static_cast<int64_t>(random()));
    words.append(std::to_string(random()));
  }
}

}  // namespace

TEST_CASE("columns of every kind are read back") {
  const test::TempDir dir;
  const std::string path = dir / "out.h5";
  constexpr int64_t kRows = 70000;  // several chunks of each kind
  io::Hdf5Writer writer(path);
  auto& small = writer.numbers<int8_t>("/a/small", "about");
  auto& wide = writer.numbers<int64_t>("/a/wide", "about");
  auto& words = writer.words("/a/words", "about");
  auto& text = writer.texts("/b/c/text", "about");
  for (int64_t i = 0; i < kRows; ++i) {
    small.append(static_cast<int8_t>(i % 100));
    wide.append(i << 40);
    words.append(i % 2 == 0 ? "stop" : "length");
    text.append("text " + std::to_string(i));
  }
  CHECK(wide.size() == kRows);
  CHECK_FALSE(std::filesystem::exists(path));
  writer.commit();
  const std::vector<int64_t> wide_read = integers(path, "/a/wide"), small_read = integers(path, "/a/small");
  const std::vector<std::string> words_read = texts(path, "/a/words"), text_read = texts(path, "/b/c/text");
  REQUIRE(wide_read.size() == kRows);
  REQUIRE(text_read.size() == kRows);
  for (size_t i = 0; i < kRows; ++i) {
    const auto row = static_cast<int64_t>(i);
    REQUIRE(wide_read[i] == row << 40);
    REQUIRE(small_read[i] == row % 100);
    REQUIRE(words_read[i] == (i % 2 == 0 ? R"({"prompt":"stop"})" : R"({"prompt":"length"})"));
    REQUIRE(text_read[i] == "{\"prompt\":\"text " + std::to_string(i) + "\"}");
  }
}

TEST_CASE("U+0000 in a text stands in a column of its own") {
  using namespace std::string_literals;
  const test::TempDir dir;
  io::Hdf5Writer writer(dir / "out.h5");
  auto& text = writer.texts("/text", "about");
  for (const std::string& value : {"plain"s, "\xC3\xA9\0x\0"s, ""s, "\xEF\xBF\xBD"s, "\0"s}) text.append(value);
  writer.commit();
  CHECK(texts(dir / "out.h5", "/text") ==
        std::vector<std::string>{R"({"prompt":"plain"})", "{\"prompt\":\"\xC3\xA9\xEF\xBF\xBDx\xEF\xBF\xBD\"}",
                                 R"({"prompt":""})", "{\"prompt\":\"\xEF\xBF\xBD\"}", "{\"prompt\":\"\xEF\xBF\xBD\"}"});
  CHECK(integers(dir / "out.h5", "/text_nul") == std::vector<int64_t>{1, 1, 1, 3, 4, 0});
}

TEST_CASE("equal columns give equal bytes, in whatever pieces they came") {
  const test::TempDir dir;
  for (const char* name : {"a.h5", "b.h5"}) {
    io::Hdf5Writer writer(dir / name);
    writer.attribute("/", "made", "by a test");
    writer.numbers<float>("/group/of/one", "about").append(1);
    fill(writer);
    writer.commit();
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // a time stamp would count seconds
  }
  CHECK(io::read_file(dir / "a.h5", 1 << 28) == io::read_file(dir / "b.h5", 1 << 28));
}

TEST_CASE("a file that is not committed leaves nothing, and an older one as it was") {
  const test::TempDir dir;
  {
    io::Hdf5Writer writer(dir / "out.h5");
    fill(writer);
  }
  CHECK(is_empty(dir));
  dir.write("out.h5", "old");
  {
    io::Hdf5Writer writer(dir / "out.h5");
    fill(writer);
  }
  CHECK(io::read_file(dir / "out.h5", 100) == "old");
  CHECK_THROWS_WITH_AS(io::Hdf5Writer(dir.path()), doctest::Contains("is a directory and would be replaced by a file"), Error);
  CHECK_THROWS_WITH_AS(io::Hdf5Writer(dir / "none/out.h5"), doctest::Contains("none/out.h5"), Error);
}

TEST_CASE("a file that has no room is an error that names it, wherever the room ends") {
  const test::TempDir dir;
  rlimit before;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto ignored = ::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t bytes : {100, 3000, 40000, 500000, 2000000}) {
    CAPTURE(bytes);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    std::string text;
    try {
      io::Hdf5Writer writer(dir / "out.h5");
      fill(writer);
      writer.commit();
    } catch (const Error& error) {
      text = error.what();
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(text.starts_with(dir / "out.h5" + ": cannot be written: H5"));
    CHECK(text.ends_with("file write failed: File too large"));
    CHECK(is_empty(dir));
  }
  ::signal(SIGXFSZ, ignored);
  io::Hdf5Writer writer(dir / "out.h5");
  fill(writer);
  writer.commit();
  CHECK(integers(dir / "out.h5", "/noise").size() == 100000);
}
