#include "io/compression.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

#include "io/file.h"
#include "kernels/core/error.h"
#include "tests/io/packing.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
using test::drain;
using test::gzip;
using test::zstd;

namespace {
/// Compressible text with no short period.
std::string sample(size_t bytes) {
  std::mt19937 random(7);
  std::string text;
  while (text.size() < bytes) text += "word" + std::to_string(random() % 5000) + " ";
  text.resize(bytes);
  return text;
}
std::string error_of(const std::string& path) {
  try {
    drain(*io::open_byte_stream(path), 4096);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kIo);
    return error.what();
  }
  return "no error";
}
}  // namespace

TEST_CASE("the first bytes decide how a file is read, not its name") {
  const test::TempDir dir;
  CHECK(drain(*io::open_byte_stream(dir.write("plain.gz", "just text"))) == "just text");
  CHECK(drain(*io::open_byte_stream(dir.write("packed.jsonl", gzip("a gzip member")))) == "a gzip member");
  CHECK(drain(*io::open_byte_stream(dir.write("frame.txt", zstd("a zstd frame")))) == "a zstd frame");
  CHECK(drain(*io::open_byte_stream(dir.write("empty", ""))) == "");
  CHECK(drain(*io::open_byte_stream(dir.write("one", "\x1f"))) == "\x1f");
}

TEST_CASE("all gzip members are read, empty ones and padding too, in pieces of any size") {
  const test::TempDir dir;
  const std::string text = sample(700000);
  const std::string path = dir.write("x.gz", gzip("") + gzip(text.substr(0, 300001)) + gzip("") +
                                                 gzip(text.substr(300001)) + gzip("") + std::string(70000, '\0'));
  for (size_t piece : {1000u, 65537u, 4000000u}) {
    CAPTURE(piece);
    CHECK(drain(*io::open_byte_stream(path), piece) == text);
  }
  CHECK(drain(*io::open_byte_stream(dir.write("small.gz", gzip("ab") + gzip("") + gzip("c"))), 1) == "abc");
}

TEST_CASE("all zstd frames are read, empty and skippable ones too") {
  const test::TempDir dir;
  const std::string text = sample(700000);
  const std::string skippable = std::string("\x5a\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);
  const std::string path =
      dir.write("x.zst", skippable + zstd(text.substr(0, 300001)) + zstd("") + skippable + zstd(text.substr(300001)));
  for (size_t piece : {1000u, 65537u, 4000000u}) {
    CAPTURE(piece);
    CHECK(drain(*io::open_byte_stream(path), piece) == text);
  }
}

TEST_CASE("a packed stream seeks forwards and backwards") {
  const test::TempDir dir;
  const std::string text = sample(700000);
  for (const std::string& path : {dir.write("x.gz", gzip(text.substr(0, 1234)) + gzip(text.substr(1234))),
                                  dir.write("x.zst", zstd(text.substr(0, 1234)) + zstd(text.substr(1234)))}) {
    CAPTURE(path);
    const auto stream = io::open_byte_stream(path);
    CHECK_FALSE(stream->can_jump());
    for (size_t offset : {600000u, 5u, 1234u, 0u, 700000u, 699999u}) {
      CAPTURE(offset);
      stream->seek(static_cast<int64_t>(offset));
      CHECK(drain(*stream) == text.substr(offset));
    }
    stream->seek(800000);
    CHECK(drain(*stream) == "");
  }
}

TEST_CASE("a cut or damaged gzip file is an error that names the file, never a shorter text") {
  const test::TempDir dir;
  const std::string packed = gzip(sample(5000)) + gzip(sample(3000));
  const size_t first = gzip(sample(5000)).size();
  for (size_t size = 2; size < packed.size(); size += 1 + size / 64) {
    if (size == first) continue;  // the file of the first member alone is whole
    CAPTURE(size);
    const std::string text = error_of(dir.write("cut.gz", packed.substr(0, size)));
    CHECK(text.starts_with(dir / "cut.gz"));
    CHECK(text.find("the file ends inside a member") != std::string::npos);
  }
  std::string flipped = packed;
  flipped[packed.size() - 6] ^= 1;  // the stored checksum
  CHECK(error_of(dir.write("sum.gz", flipped)).find("incorrect data check") != std::string::npos);
  CHECK(error_of(dir.write("tail.gz", packed + std::string("\0\0x", 3))).find("belong to no member") !=
        std::string::npos);
  CHECK(error_of(dir.write("tail2.gz", packed + "garbage")).find("gzip data is damaged") != std::string::npos);
}

TEST_CASE("a cut or damaged zstd file is an error that names the file, never a shorter text") {
  const test::TempDir dir;
  const std::string packed = zstd(sample(5000)) + zstd(sample(3000));
  const size_t first = zstd(sample(5000)).size();
  for (size_t size = 4; size < packed.size(); size += 1 + size / 64) {
    if (size == first) continue;
    CAPTURE(size);
    const std::string text = error_of(dir.write("cut.zst", packed.substr(0, size)));
    CHECK(text.starts_with(dir / "cut.zst"));
    CHECK(text.find("the file ends inside a frame") != std::string::npos);
  }
  std::string flipped = packed;
  flipped[packed.size() - 2] ^= 1;
  CHECK(error_of(dir.write("sum.zst", flipped)).find("checksum") != std::string::npos);
  CHECK(error_of(dir.write("tail.zst", packed + "garbage")).find("zstd data is damaged") != std::string::npos);
}

TEST_CASE("a zstd frame with a window above 128 MiB is refused") {
  const test::TempDir dir;
  CHECK(drain(*io::open_byte_stream(dir.write("ok.zst", zstd(sample(1000), 27)))) == sample(1000));
  CHECK(error_of(dir.write("long.zst", zstd(sample(1000), 28))).find("too much memory") != std::string::npos);
}

TEST_CASE("directories, pipes and missing files are refused by name") {
  const test::TempDir dir;
  CHECK_THROWS_WITH_AS(io::open_byte_stream(dir.path()), doctest::Contains("Is a directory"), Error);
  CHECK_THROWS_WITH_AS(io::open_byte_stream(dir / "absent"),
                       doctest::Contains((dir / "absent: cannot open for reading: No such file").c_str()), Error);
  CHECK_THROWS_WITH_AS(io::open_byte_stream("/dev/null"), doctest::Contains("is a pipe or a device"), Error);
}
