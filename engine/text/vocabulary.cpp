#include "engine/text/vocabulary.h"

#include <algorithm>

#include "kernels/core/error.h"

namespace tokenmill::text {

Vocabulary Vocabulary::build(std::vector<std::pair<std::string, int64_t>> entries, std::string_view where,
                             bool repeated_spellings) {
  int64_t size = 0;
  for (const auto& [token, id] : entries) {
    if (id < 0 || id >= kMaxSize) {
      throw Error(ErrorKind::kInput, "{}: token \"{}\" has id {}; ids run from 0 to {}", where, token, id,
                  kMaxSize - 1);
    }
    size = std::max(size, id + 1);
  }
  Vocabulary out;
  out.tokens_.resize(static_cast<size_t>(size));
  out.present_.resize(static_cast<size_t>(size));
  out.ids_.reserve(entries.size());
  for (auto& [token, id] : entries) {
    const auto i = static_cast<size_t>(id);
    if (out.present_[i]) {
      throw Error(ErrorKind::kInput, "{}: id {} stands for both \"{}\" and \"{}\"", where, id, out.tokens_[i], token);
    }
    out.tokens_[i] = std::move(token);
    out.present_[i] = true;
    const auto [entry, is_new] = out.ids_.try_emplace(out.tokens_[i], static_cast<int32_t>(id));
    if (!is_new && !repeated_spellings) {
      throw Error(ErrorKind::kInput, "{}: token \"{}\" has two ids, {} and {}", where, entry->first, entry->second, id);
    }
    if (!is_new) entry->second = std::min(entry->second, static_cast<int32_t>(id));
  }
  return out;
}

}  // namespace tokenmill::text
