#include "io/file.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

using namespace tokenmill;
namespace fs = std::filesystem;

namespace {
/// Writes beyond `bytes` of any file fail with EFBIG while this lives: a disk that is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};
}  // namespace

TEST_CASE("errors name the file, the action and the reason") {
  const test::TempDir dir;
  CHECK_THROWS_WITH_AS(io::File::open_read(dir / "no"),
                       (dir / "no: cannot open for reading: No such file or directory (errno 2)").c_str(), Error);
  CHECK_THROWS_WITH_AS(io::File::create(dir / "no/file"), doctest::Contains("no/file: cannot create: No such file"),
                       Error);
  dir.write("there", "x");
  CHECK_THROWS_WITH_AS(io::File::create_new(dir / "there"), doctest::Contains("there: cannot create: File exists"),
                       Error);
  CHECK_THROWS_WITH_AS(io::File::open_read(dir.path()), doctest::Contains("Is a directory"), Error);
}

TEST_CASE("reads return short only at the end of the file") {
  const test::TempDir dir;
  const io::File file = io::File::open_read(dir.write("f", "0123456789"));
  std::array<std::byte, 4> buffer;
  CHECK(file.size() == 10);
  CHECK(file.read_at(3, buffer) == 4);
  CHECK(static_cast<char>(buffer[0]) == '3');
  CHECK(file.read_at(8, buffer) == 2);
  CHECK(file.read_at(10, buffer) == 0);
  CHECK_THROWS_WITH_AS(file.read_exactly_at(8, buffer),
                       doctest::Contains("f: is cut off: 4 bytes wanted at offset 8, the file holds 2 there"), Error);
}

TEST_CASE("read_file keeps its cap") {
  const test::TempDir dir;
  CHECK(io::read_file(dir.write("f", "0123456789"), 10) == "0123456789");
  CHECK(io::read_file(dir.write("e", ""), 10).empty());
  CHECK_THROWS_WITH_AS(io::read_file(dir / "f", 9), doctest::Contains("f: holds 10 bytes; at most 9 are allowed"),
                       Error);
}

TEST_CASE("read_file takes what a pipe gives, up to the cap") {
  const test::TempDir dir;
  const std::string path = dir / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const auto read_written = [&](int64_t max_bytes) {
    std::thread writer([&] {
      io::File pipe = io::File::create(path);
      pipe.write_all(std::string(100'000, 'x'));
    });
    std::string text;
    try {
      text = io::read_file(path, max_bytes);
    } catch (const Error& error) {
      text = error.what();
    }
    writer.join();
    return text;
  };
  CHECK(read_written(100'000) == std::string(100'000, 'x'));
  CHECK(read_written(99'999) == path + ": gives more than 99999 bytes; no more are allowed here");
}

TEST_CASE("FileWriter writes every byte in order, buffered or large, and knows its offset") {
  const test::TempDir dir;
  std::string expected;
  io::FileWriter writer(io::File::create(dir / "f"), 0, 16);
  for (size_t size : {0u, 1u, 5u, 9u, 1u, 15u, 16u, 17u, 100u, 3u}) {
    const std::string piece(size, static_cast<char>('a' + size % 26));
    writer.write(piece);
    expected += piece;
    CHECK(writer.offset() == static_cast<int64_t>(expected.size()));
  }
  writer.flush();
  CHECK(io::read_file(dir / "f", 1000) == expected);
  writer.close();
  CHECK_THROWS_WITH_AS(writer.write("x"), doctest::Contains("nothing more is written"), Error);

  io::File file = io::File::open_append(dir / "f");
  const int64_t end = file.size();
  io::FileWriter more(std::move(file), end);
  more.write("end");
  more.sync();
  CHECK(more.offset() == end + 3);
  CHECK(io::read_file(dir / "f", 1000) == expected + "end");
}

TEST_CASE("truncate cuts the file and writing goes on there") {
  const test::TempDir dir;
  io::File file = io::File::open_append(dir.write("f", "complete\ntorn"));
  file.truncate(9);
  file.write_all("next\n");
  CHECK(io::read_file(dir / "f", 100) == "complete\nnext\n");
}

TEST_CASE("a full disk is an error, and the writer stays unusable after it") {
  const test::TempDir dir;
  const FileSizeLimit limit(4096);
  io::FileWriter writer(io::File::create(dir / "f"), 0, 64);
  CHECK_THROWS_WITH_AS(
      [&] {
        for (int i = 0; i < 1000; ++i) writer.write("0123456789");
      }(),
      doctest::Contains("f: cannot write: File too large"), Error);
  CHECK_THROWS_WITH_AS(writer.write("x"), doctest::Contains("an earlier write failed"), Error);
  CHECK_THROWS_WITH_AS(writer.flush(), doctest::Contains("an earlier write failed"), Error);
  CHECK(io::File::open_read(dir / "f").size() == 4096);
}

TEST_CASE("/dev/full fails at the flush") {
  if (!fs::exists("/dev/full")) {
    MESSAGE("skipped: no /dev/full here");
    return;
  }
  io::FileWriter writer(io::File::open_append("/dev/full"));
  writer.write("x");
  CHECK_THROWS_WITH_AS(writer.flush(), doctest::Contains("No space left on device"), Error);
}

TEST_CASE("AtomicFile never takes the place of a device, a pipe or a directory") {
  const test::TempDir dir;
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  for (const std::string& path : {std::string("/dev/null"), dir / "pipe", dir.path()}) {
    CAPTURE(path);
    CHECK_THROWS_WITH_AS(io::write_file_atomically(path, "x"), doctest::Contains("would be replaced by a file"), Error);
  }
  CHECK(fs::is_fifo(dir / "pipe"));
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
  CHECK_NOTHROW(io::check_replaceable(dir / "new"));
}

TEST_CASE("AtomicFile never takes the place of a link, wherever it leads") {
  const test::TempDir dir;
  dir.write("file", "mine");
  for (const std::string& target : {std::string("/dev/null"), std::string("/proc/self/fd/1"), dir / "file", dir / "none"}) {
    CAPTURE(target);
    fs::create_symlink(target, dir / "link");
    CHECK_THROWS_WITH_AS(io::write_file_atomically(dir / "link", "x"),
                         doctest::Contains(("is a symbolic link (to " + target + ") and would be replaced").c_str()), Error);
    CHECK(fs::read_symlink(dir / "link") == target);
    fs::remove(dir / "link");
  }
  CHECK(io::read_file(dir / "file", 100) == "mine");
}

TEST_CASE("a name of a descriptor of this process is that descriptor, not its file opened anew") {
  const test::TempDir dir;
  io::File log = io::File::create(dir / "log");
  log.write_all("before\n");
  fs::create_symlink("/proc/self/fd/" + std::to_string(log.fd()), dir / "link");
  for (const std::string& name : {"/dev/fd/" + std::to_string(log.fd()), dir / "link"}) {
    CAPTURE(name);
    io::File again = io::File::create_in_place(name);
    again.write_all("again\n");
    again.close();
  }
  log.write_all("after\n");
  CHECK(io::read_file(dir / "log", 100) == "before\nagain\nagain\nafter\n");
  dir.write("old", "contents");
  fs::create_symlink(dir / "old", dir / "other");
  io::File::create_in_place(dir / "other").write_all("new");
  CHECK(io::read_file(dir / "old", 100) == "new");
  REQUIRE(::mkfifo((dir / "pipe").c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(io::File::create_in_place(dir / "pipe"), doctest::Contains("a pipe that nobody reads"), Error);
  const int reader = ::open((dir / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  io::File::create_in_place(dir / "pipe").write_all("through");
  char seen[8] = {};
  CHECK(::read(reader, seen, 7) == 7);
  CHECK(std::string(seen) == "through");
  ::close(reader);
  CHECK_THROWS_WITH_AS(io::File::create_in_place("/dev/fd/987"), doctest::Contains("Bad file descriptor"), Error);
}

TEST_CASE("AtomicFile replaces a file only when committed, and leaves nothing behind otherwise") {
  const test::TempDir dir;
  dir.write("f", "old");
  {
    io::AtomicFile file(dir / "f");
    file.write("new text");
  }
  CHECK(io::read_file(dir / "f", 100) == "old");
  {
    io::AtomicFile file(dir / "f");
    file.write("new ");
    file.write("text");
    file.commit();
  }
  CHECK(io::read_file(dir / "f", 100) == "new text");
  io::write_file_atomically(dir / "g", "whole");
  CHECK(io::read_file(dir / "g", 100) == "whole");
  CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 2);
}
