#include "io/file_digest.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

namespace tokenmill::io {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// A sparse file in which bytes can be changed.
class ChangingFile {
 public:
  explicit ChangingFile(int64_t size) : path_(dir_.path() + "/file") {
    std::ofstream{path_};
    std::filesystem::resize_file(path_, static_cast<uintmax_t>(size));
  }
  /// Whether num_bytes other bytes at offset give another digest; the bytes are then as before.
  bool notices(int64_t offset, int64_t num_bytes, int64_t front_bytes = 0) const {
    const std::string before = file_digest(path_, front_bytes);
    write(offset, std::string(static_cast<size_t>(num_bytes), 'x'));
    const std::string after = file_digest(path_, front_bytes);
    write(offset, std::string(static_cast<size_t>(num_bytes), '\0'));
    CHECK(file_digest(path_, front_bytes) == before);
    return after != before;
  }
  const std::string& path() const { return path_; }

 private:
  void write(int64_t offset, const std::string& bytes) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset);
    file << bytes;
  }
  test::TempDir dir_;
  std::string path_;
};

TEST_CASE("each byte of a file up to 16 MiB counts") {
  const ChangingFile file(16 * kMiB);
  for (const int64_t offset : {int64_t{0}, 5 * kMiB + 77, 8 * kMiB, 16 * kMiB - 1}) CHECK(file.notices(offset, 1));
  CHECK(file_digest(file.path()).starts_with("16777216 bytes, "));
  const ChangingFile empty(0);
  CHECK(file_digest(empty.path()).starts_with("0 bytes, "));
}

TEST_CASE("of a longer file the ends count whole, between them whatever is as long as samples are apart") {
  const int64_t size = 100 * kMiB;
  const ChangingFile file(size);
  for (const int64_t offset : {int64_t{0}, kMiB - 1, size - kMiB, size - 1}) CHECK(file.notices(offset, 1));
  for (int64_t offset = kMiB; offset + 4 * kMiB <= size - kMiB; offset += 3 * kMiB + 12345)
    CHECK(file.notices(offset, 4 * kMiB));
  CHECK_FALSE(file.notices(kMiB + (16 << 10), 1000));  // behind the first sample
  std::filesystem::resize_file(file.path(), static_cast<uintmax_t>(size - 1));
  CHECK(file_digest(file.path()).starts_with("104857599 bytes, "));
}

TEST_CASE("a front that is longer than an end counts whole") {
  const ChangingFile file(40 * kMiB);
  CHECK(file.notices(7 * kMiB - 1, 1, 7 * kMiB));
  CHECK_FALSE(file.notices(7 * kMiB - 1, 1));
  CHECK(file.notices(0, 1, int64_t{1} << 40));  // a header that lies about its length
}

TEST_CASE("a file just longer than what is read whole has its ends and samples") {
  const ChangingFile file(16 * kMiB + 1);
  CHECK(file.notices(16 * kMiB, 1));
  CHECK(file.notices(0, 1, 16 * kMiB));
}

TEST_CASE("a file that is not there is named") {
  CHECK_THROWS_WITH_AS(file_digest("/nowhere/model.gguf"), doctest::Contains("/nowhere/model.gguf"), Error);
}

}  // namespace
}  // namespace tokenmill::io
