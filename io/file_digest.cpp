#include "io/file_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <span>

#include "io/file.h"

namespace tokenmill::io {
namespace {

constexpr int64_t kWholeBytes = int64_t{16} << 20;  ///< a file up to this long is read whole
constexpr int64_t kEdgeBytes = int64_t{1} << 20;
constexpr int64_t kNumSamples = 32;  ///< between the ends of a longer one
constexpr int64_t kSampleBytes = int64_t{16} << 10;

/// Bytes of a file, one stretch after the other.
class Stretches {
 public:
  explicit Stretches(const File& file) : file_(file) {}
  void add(int64_t offset, int64_t size) {
    const size_t before = bytes_.size();
    bytes_.resize(before + static_cast<size_t>(size));
    file_.read_exactly_at(offset, std::as_writable_bytes(std::span(bytes_)).subspan(before));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  const File& file_;
  std::string bytes_;
};

}  // namespace

std::string file_digest(const std::string& path, int64_t front_bytes) {
  const File file = File::open_read(path);
  const int64_t size = file.size();
  Stretches read(file);
  if (size <= kWholeBytes) {
    read.add(0, size);
  } else {
    const int64_t front = std::clamp(front_bytes, kEdgeBytes, kWholeBytes), middle = size - front - kEdgeBytes;
    read.add(0, front);
    for (int64_t i = 0; i < kNumSamples && middle > kSampleBytes; ++i)
      read.add(front + (middle - kSampleBytes) / kNumSamples * i, kSampleBytes);
    read.add(size - kEdgeBytes, kEdgeBytes);
  }
  return fmt::format("{} bytes, {:016x}", size, XXH3_64bits(read.bytes().data(), read.bytes().size()));
}

}  // namespace tokenmill::io
