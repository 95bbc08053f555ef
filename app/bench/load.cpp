#include "app/bench/load.h"

#include "kernels/random.h"

namespace tokenmill::app {
namespace {

constexpr uint64_t kMeasuredKey = 0x62656e6368, kWarmUpKey = 0x7761726d;  // keep their streams apart
constexpr int64_t kMaxPart = int64_t{1} << 31;                            // ids of one stream; prompts are shorter

/// Appends `count` ids of the stream's part `part`.
void append_ids(std::vector<int32_t>& ids, uint64_t key, int64_t part, int64_t count, int64_t vocab_size) {
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(uniform(key, part * kMaxPart + i) * static_cast<double>(vocab_size)));
}

}  // namespace

int64_t prompt_tokens_of(const BenchOptions& b) {
  return b.prefix_repetition ? b.repeated_prefix_len + b.suffix_len : b.prefix_len + b.input_len;
}

Request bench_request(int64_t number, const RunOptions& options, int64_t vocab_size, int64_t repetition) {
  const BenchOptions& b = options.bench;
  const uint64_t stream = repetition == kWarmUp ? kWarmUpKey : kMeasuredKey ^ (static_cast<uint64_t>(repetition) << 48);
  const uint64_t key = options.seed ^ stream;
  const int64_t prefix_len = b.prefix_repetition ? b.repeated_prefix_len : b.prefix_len;
  const int64_t prefix = b.prefix_repetition ? number % b.num_prefixes : 0;
  Request request;
  request.request_id = number;
  request.random_key = options.seed;
  append_ids(request.prompt_token_ids, ~key, prefix, prefix_len, vocab_size);
  append_ids(request.prompt_token_ids, key, number, prompt_tokens_of(b) - prefix_len, vocab_size);
  request.sampling = normalized({.temperature = 0, .max_tokens = b.output_len, .ignore_eos = true});
  return request;
}

}  // namespace tokenmill::app
