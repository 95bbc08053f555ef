#include "app/file_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "io/file.h"

namespace tokenmill::app {
namespace {

constexpr int64_t kWholeBytes = int64_t{16} << 20;  ///< a file up to this long is read whole
constexpr int64_t kEdgeBytes = int64_t{1} << 20;
constexpr int64_t kNumSamples = 32;  ///< between the ends of a longer one
constexpr int64_t kSampleBytes = int64_t{16} << 10;

std::string digest(const std::string& bytes) { return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size())); }

/// Bytes of a file, one stretch after the other.
class Stretches {
 public:
  explicit Stretches(const io::File& file) : file_(file) {}
  void add(int64_t offset, int64_t size) {
    const size_t before = bytes_.size();
    bytes_.resize(before + static_cast<size_t>(size));
    file_.read_exactly_at(offset, std::as_writable_bytes(std::span(bytes_)).subspan(before));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  const io::File& file_;
  std::string bytes_;
};

}  // namespace

std::string file_digest(const std::string& path, int64_t front_bytes) {
  const io::File file = io::File::open_read(path);
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
  return fmt::format("{} bytes, {}", size, digest(read.bytes()));
}

std::string checkpoint_digest(const WeightCatalog& weights) {
  std::map<std::string, io::File> files;
  std::string text;
  for (const auto& [name, source] : weights.all()) {
    auto [found, is_new] = files.try_emplace(source.file);
    if (is_new) {
      found->second = io::File::open_read(source.file);
      text += file_digest(source.file) + "\n";
    }
    std::string sample(static_cast<size_t>(std::min(source.num_bytes, kSampleBytes)), '\0');
    const int64_t middle = source.offset + (source.num_bytes - static_cast<int64_t>(sample.size())) / 2;
    found->second.read_exactly_at(middle, std::as_writable_bytes(std::span(sample)));
    text += fmt::format("{} {}\n", name, digest(sample));
  }
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace tokenmill::app
