#pragma once
#include <cstdint>
#include <vector>

namespace tokenmill {

/// One token in the distribution of a position: natural log of the softmax of the raw logits (before penalties, bias,
/// temperature and filters).
struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
  int32_t rank = 1;  ///< 1 + the number of tokens with a larger logit
  bool operator==(const TokenLogprob&) const = default;
};

/// What a position reports: the chosen token (or the prompt's own) first, then those asked for: the most likely ones in
/// descending order, ascending id among equals, or the ids of logprob_token_ids in their order. The chosen one may
/// stand among them again.
using PositionLogprobs = std::vector<TokenLogprob>;

/// Host memory of a position that reports num_entries tokens, list and allocation included.
constexpr int64_t logprob_bytes(int64_t num_entries) {
  return 40 + num_entries * static_cast<int64_t>(sizeof(TokenLogprob));
}

}  // namespace tokenmill
