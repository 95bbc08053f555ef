#include "engine/text/word_cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace tokenmill::text {

uint64_t WordCache::hash(std::string_view word) { return XXH3_64bits(word.data(), word.size()); }

std::span<const int32_t> WordCache::find(std::string_view word, uint64_t hash) const {
  if (slots_.empty()) return {};
  const Slot& slot = slots_[hash % kSlots];
  if (slot.hash != hash || slot.word_size != word.size()) return {};
  if (std::string_view(words_).substr(slot.word_begin, slot.word_size) != word) return {};
  return {ids_.data() + slot.ids_begin, slot.num_ids};
}

void WordCache::insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
  if (word.empty() || word.size() > kMaxWordBytes || ids.empty()) return;
  if (words_.size() + word.size() > kMaxBytes || ids_.size() + ids.size() > kMaxBytes) clear();
  if (slots_.empty()) slots_.resize(kSlots);
  slots_[hash % kSlots] = {hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(ids_.size()),
                           static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())};
  words_.append(word);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

void WordCache::clear() {
  std::fill(slots_.begin(), slots_.end(), Slot{});
  words_.clear();
  ids_.clear();
}

}  // namespace tokenmill::text
