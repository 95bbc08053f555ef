#include "app/checkpoint_digest.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <span>

#include "io/file.h"
#include "io/file_digest.h"

namespace tokenmill::app {
namespace {

constexpr int64_t kSampleBytes = int64_t{16} << 10;  ///< of a tensor

}  // namespace

std::string checkpoint_digest(const WeightCatalog& weights) {
  std::map<std::string, io::File> files;
  std::string text;
  for (const auto& [name, source] : weights.all()) {
    auto [found, is_new] = files.try_emplace(source.file);
    if (is_new) {
      found->second = io::File::open_read(source.file);
      text += io::file_digest(source.file) + "\n";
    }
    std::string sample(static_cast<size_t>(std::min(source.num_bytes, kSampleBytes)), '\0');
    const int64_t middle = source.offset + (source.num_bytes - static_cast<int64_t>(sample.size())) / 2;
    found->second.read_exactly_at(middle, std::as_writable_bytes(std::span(sample)));
    text += fmt::format("{} {:016x}\n", name, XXH3_64bits(sample.data(), sample.size()));
  }
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace tokenmill::app
