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
/// repetition: of the measured load, from 0 on, or kWarmUp. Requests of different repetitions have nothing in common:
/// the prefix cache must not know them.
constexpr int64_t kWarmUp = -1;
Request bench_request(int64_t number, const RunOptions& options, int64_t vocab_size, int64_t repetition);

}  // namespace tokenmill::app
