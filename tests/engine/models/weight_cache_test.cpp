#include "engine/models/weight_cache.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/captured_log.h"
#include "tests/support/temp_dir.h"

namespace tokenmill {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIdentity = "checkpoint abc, stage 0";

/// A whole chunk and a part of one.
std::vector<std::byte> payload(size_t size = (size_t{8} << 20) + 12345) {
  std::vector<std::byte> bytes(size);
  std::mt19937_64 random(5);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

std::string contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

/// Flips one bit of a file.
void flip(const std::string& path, size_t at) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(at));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(byte ^ 4));
}

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename());
  return names;
}

TEST_CASE("weights that were kept come back under their identity alone") {
  const test::TempDir dir;
  const test::CapturedLog log;
  const WeightCache cache(dir / "made/when/needed");
  for (const size_t size : {size_t{1}, size_t{8} << 20, payload().size()}) {
    CAPTURE(size);
    const std::vector<std::byte> kept = payload(size);
    std::vector<std::byte> found(size);
    fs::remove_all(dir / "made");
    CHECK_FALSE(cache.load(kIdentity, found));
    CHECK_FALSE(fs::exists(dir / "made"));  // looking writes nothing
    REQUIRE(cache.store(kIdentity, kept));
    CHECK_EQ(names_in(dir / "made/when/needed").size(), 1);
    REQUIRE(cache.load(kIdentity, found));
    CHECK(found == kept);
    std::vector<std::byte> others(size);
    CHECK_FALSE(cache.load("checkpoint abc, stage 1", others));
    CHECK(is_zero(others));
  }
  CHECK_EQ(log.text(), "");
}

TEST_CASE("a file that is not what was kept is named, ignored and replaced") {
  const test::TempDir dir;
  const WeightCache cache(dir.path());
  const std::string path = cache.path_of(kIdentity);
  const std::vector<std::byte> kept = payload();
  REQUIRE(cache.store(kIdentity, kept));
  const std::string good = contents(path);
  const size_t front = good.size() - kept.size();

  const auto refused = [&](const std::string& reason) {
    CAPTURE(reason);
    std::vector<std::byte> found(kept.size());
    {
      const test::CapturedLog log;
      CHECK_FALSE(cache.load(kIdentity, found));
      CHECK(log.text().find(path + ": " + reason) != std::string::npos);
    }
    CHECK(is_zero(found));
    const test::CapturedLog log;
    REQUIRE(cache.store(kIdentity, kept));
    REQUIRE(cache.load(kIdentity, found));
    CHECK(found == kept);
    CHECK_EQ(log.text(), "");
  };

  SUBCASE("cut off anywhere") {
    for (const size_t size :
         {size_t{0}, size_t{7}, size_t{31}, size_t{40}, front - 1, front, front + 1, good.size() - 1}) {
      CAPTURE(size);
      overwrite(path, good.substr(0, size));
      refused(size < 32 ? "holds no packed weights" : "has " + std::to_string(size) + " bytes instead of");
    }
  }
  SUBCASE("longer than it was") {
    overwrite(path, good + "x");
    refused("has");
  }
  SUBCASE("bits flipped in the payload") {
    for (const size_t at : {front, front + (size_t{8} << 20), good.size() - 1}) {
      CAPTURE(at);
      flip(path, at);
      refused("is damaged between bytes");
    }
  }
  SUBCASE("bits flipped in the front: never believed, whichever bit it is") {
    const size_t used = 32 + std::string(kIdentity).size() + 8 * 2;
    std::vector<size_t> places(used);
    for (size_t i = 0; i < used; ++i) places[i] = i;
    places.push_back(front - 1);  // padding
    for (const size_t at : places) {
      CAPTURE(at);
      flip(path, at);
      const test::CapturedLog log;
      std::vector<std::byte> found(kept.size());
      CHECK_FALSE(cache.load(kIdentity, found));
      CHECK(log.text().find(path) != std::string::npos);
      flip(path, at);
    }
    CHECK(contents(path) == good);
  }
  SUBCASE("another version") {
    std::string bad = good;
    bad[8] = 9;
    overwrite(path, bad);
    refused("has format version 9, this program keeps weights in version 1");
  }
  SUBCASE("another identity's file under this name") {
    REQUIRE(cache.store("checkpoint abd, stage 0", kept));
    fs::rename(cache.path_of("checkpoint abd, stage 0"), path);
    refused("holds weights of another model, layout or share");
  }
  SUBCASE("another size") {
    REQUIRE(cache.store(kIdentity, payload(100)));
    refused("holds weights of another model, layout or share");
  }
}

TEST_CASE("what is no file is neither read nor replaced") {
  const test::TempDir dir;
  const WeightCache cache(dir.path());
  const std::string path = cache.path_of(kIdentity);
  std::string kind;
  SUBCASE("a directory") {
    fs::create_directory(path);
    kind = "a directory";
  }
  SUBCASE("a pipe, which nobody writes to") {
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    kind = "a pipe";
  }
  std::vector<std::byte> found(1000);
  const test::CapturedLog log;
  CHECK_FALSE(cache.load(kIdentity, found));
  CHECK_FALSE(cache.store(kIdentity, found));
  CHECK(log.text().find(path + ": is no regular file; the weights are read") != std::string::npos);
  CHECK(log.text().find(path + ": is " + kind + " and would be replaced by a file; remove it or name another file; the packed weights are not kept") !=
        std::string::npos);
  CHECK_EQ(names_in(dir.path()).size(), 1);
}

TEST_CASE("where nothing can be written a warning says why, and nothing is left behind") {
  const test::TempDir dir;
  const std::vector<std::byte> kept = payload(100'000);
  const test::CapturedLog log;
  SUBCASE("a file in place of the directory") {
    dir.write("file", "mine");
    CHECK_FALSE(WeightCache(dir / "file").store(kIdentity, kept));
    CHECK(log.text().find("--weight-cache: " + (dir / "file") + " cannot be made a directory: ") != std::string::npos);
    CHECK_EQ(contents(dir / "file"), "mine");
  }
  SUBCASE("a file system that takes no directories") {
    CHECK_FALSE(WeightCache("/proc/nothing").store(kIdentity, kept));
    CHECK(
        log.text().find("--weight-cache: /proc/nothing cannot be made a directory: No such file or directory; name one "
                        "on a disk of this node; the packed weights are not kept") != std::string::npos);
  }
  SUBCASE("a file system with no room for files at all") {
    CHECK_FALSE(WeightCache("/proc").store(kIdentity, kept));  // reports no free byte
    CHECK(log.text().find(" are free there; the packed weights are not kept") != std::string::npos);
  }
}

TEST_CASE("a disk that fills up while weights are written leaves the older file as it was") {
  const test::TempDir dir;
  const WeightCache cache(dir.path());
  const std::vector<std::byte> kept = payload(1'000'000);
  REQUIRE(cache.store(kIdentity, kept));
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto previous = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{500'000, limit.rlim_max};
  const test::CapturedLog log;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const bool stored = cache.store(kIdentity, std::vector<std::byte>(1'000'000));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, previous);
  CHECK_FALSE(stored);
  CHECK(log.text().find("cannot write") != std::string::npos);
  CHECK_EQ(names_in(dir.path()).size(), 1);
  std::vector<std::byte> found(kept.size());
  REQUIRE(cache.load(kIdentity, found));
  CHECK(found == kept);
}

TEST_CASE("what killed writers left goes with the next one, what live ones write stays") {
  const test::TempDir dir;
  const WeightCache cache(dir.path());
  const std::string path = cache.path_of(kIdentity);
  const std::string gone = path + ".tmp.2147483646", alive = path + ".tmp." + std::to_string(::getppid()),
                    other = path + ".tmp.mine", foreign = cache.path_of("another") + ".tmp.2147483646";
  for (const std::string& name : {gone, alive, other, foreign}) overwrite(name, "half");
  REQUIRE(cache.store(kIdentity, payload(10)));
  CHECK_FALSE(fs::exists(gone));
  CHECK(fs::exists(alive));
  CHECK(fs::exists(other));
  CHECK(fs::exists(foreign));
}

}  // namespace
}  // namespace tokenmill
