#include "app/duplicates.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tokenmill::app {
namespace {

/// What an answer depends on: a seed decides nothing when nothing is drawn.
SamplingParams relevant(SamplingParams sampling) {
  if (is_greedy(sampling)) sampling.seed.reset();
  return sampling;
}

}  // namespace

Duplicates::Key Duplicates::key_of(const Request& request) {
  const uint64_t random_key = is_greedy(request.sampling) ? 0 : request.random_key;
  const uint64_t seed = XXH3_64bits_withSeed(request.cache_salt.data(), request.cache_salt.size(), random_key);
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(request.prompt_token_ids.data(), request.prompt_token_ids.size() * sizeof(int32_t), seed);
  return {hash.low64, hash.high64};
}

std::optional<int64_t> Duplicates::find_or_add(const Request& request) {
  const Key key = key_of(request);
  SamplingParams sampling = relevant(request.sampling);
  const auto [begin, end] = computed_.equal_range(key);
  for (auto found = begin; found != end; ++found)
    if (found->second.sampling == sampling) return found->second.request_id;
  by_id_.emplace(request.request_id, computed_.emplace(key, Computed{request.request_id, std::move(sampling)}));
  return std::nullopt;
}

void Duplicates::remove(int64_t request_id) {
  const auto found = by_id_.find(request_id);
  if (found == by_id_.end()) return;
  computed_.erase(found->second);
  by_id_.erase(found);
}

}  // namespace tokenmill::app
