#pragma once
#include <cstdint>

#include "app/options.h"
#include "engine/request.h"

namespace tokenmill::app {

/// Prompt tokens of each request of the load.
int64_t prompt_tokens_of(const BenchOptions& bench);

/// Request `number` of the load, the same whatever the ranks: greedy, end-of-sequence ignored, so that each runs its
/// length. Ids are uniform over the vocabulary, from --seed.
///   random: --prefix-len ids that all requests share, then --input-len of its own.
///   prefix_repetition: one of --prefix-repetition-num-prefixes prefixes, in turn, then ids of its own.
/// Requests of the warm-up have nothing in common with measured ones: the prefix cache must not know those.
Request bench_request(int64_t number, const RunOptions& options, int64_t vocab_size, bool warm_up);

}  // namespace tokenmill::app
