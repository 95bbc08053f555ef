#include "engine/thinking_limiter.h"

#include <algorithm>

namespace tokenmill {
namespace {

using Ids = std::span<const int32_t>;

bool contains(Ids tokens, Ids marker) {
  return std::search(tokens.begin(), tokens.end(), marker.begin(), marker.end()) != tokens.end();
}

bool ends_with(Ids tokens, Ids marker) {
  return marker.size() <= tokens.size() && std::ranges::equal(tokens.last(marker.size()), marker);
}

}  // namespace

int32_t ThinkingLimiter::forced(std::span<const int32_t> generated) const {
  const Ids start = budget_.start_token_ids, end = budget_.end_token_ids;
  const auto budget = static_cast<size_t>(budget_.max_tokens);
  const bool open = budget_.num_prompt_tokens >= 0;
  const size_t used = open ? std::min(static_cast<size_t>(budget_.num_prompt_tokens), budget) : 0;
  // With j tokens of the end marker generated, the budget was used up j tokens ago.
  for (size_t j = 0; j < end.size() && j <= generated.size(); ++j) {
    if (!ends_with(generated, end.first(j))) continue;
    const Ids before = generated.first(generated.size() - j);
    if (open && before.size() == budget - used && !contains(before, end)) return end[j];
    if (before.size() < budget) continue;
    const Ids thought = before.last(budget);
    if (ends_with(before.first(before.size() - budget), start) && !contains(thought, end)) return end[j];
  }
  return -1;
}

int64_t num_open_thinking_tokens(std::span<const int32_t> prompt, std::span<const int32_t> start_token_ids,
                                 std::span<const int32_t> end_token_ids) {
  const auto start = std::find_end(prompt.begin(), prompt.end(), start_token_ids.begin(), start_token_ids.end());
  if (start == prompt.end()) return -1;
  const Ids behind = prompt.subspan(static_cast<size_t>(start - prompt.begin()) + start_token_ids.size());
  return contains(behind, end_token_ids) ? -1 : static_cast<int64_t>(behind.size());
}

}  // namespace tokenmill
