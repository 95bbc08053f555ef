#pragma once
#include <cstdint>
#include <vector>

#include "tests/support/reference.h"

namespace tokenmill::reference {

/// Everything that a token is chosen by, for one row; see Ops::pick.
struct SamplerRow {
  double temperature = 0;
  Filter filter;
  double presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  std::vector<int32_t> prompt_ids, generated_ids;
  Values bias;                      ///< [n], minus infinity masks; or empty
  std::vector<int32_t> masked_ids;  ///< of this step
};

/// The logits after bias, masks and penalties.
Values adjusted(const Values& logits, const SamplerRow& row);

struct Draw {
  int64_t id = -1;    ///< -1: every id is masked
  double margin = 1;  ///< how far the closest decision (a border of a filter, the draw itself) was from another outcome
};
/// The token that the uniform u gives.
Draw draw(const Values& logits, const SamplerRow& row, double u);

/// log softmax of the raw logits at id, and one more than the number of larger logits.
double logprob(const Values& logits, int64_t id);
int64_t rank(const Values& logits, int64_t id);
/// The k most likely ids, most likely first, ascending among equals.
std::vector<int64_t> most_likely(const Values& logits, int64_t k);

}  // namespace tokenmill::reference
