#include "app/file_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>

#include "io/file.h"

namespace tokenmill::app {
namespace {

constexpr int64_t kEdgeBytes = int64_t{1} << 20;
constexpr int64_t kSampleBytes = int64_t{16} << 10;

std::string digest(const std::string& bytes) { return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size())); }

}  // namespace

std::string file_digest(const std::string& path) {
  const io::File file = io::File::open_read(path);
  const int64_t size = file.size(), edge = std::min(size, kEdgeBytes);
  std::string bytes(static_cast<size_t>(2 * edge), '\0');
  const std::span<std::byte> all = std::as_writable_bytes(std::span(bytes));
  file.read_exactly_at(0, all.first(static_cast<size_t>(edge)));
  file.read_exactly_at(size - edge, all.last(static_cast<size_t>(edge)));
  return fmt::format("{} bytes, {}", size, digest(bytes));
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
