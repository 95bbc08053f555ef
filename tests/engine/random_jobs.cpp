#include "tests/engine/random_jobs.h"

#include <algorithm>
#include <random>

namespace tokenmill::test {
namespace {

using Ids = std::vector<int32_t>;

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int64_t n) { return between(1, n) == 1; }
  template <typename T>
  const T& pick(const std::vector<T>& items) {
    return items[static_cast<size_t>(between(0, static_cast<int64_t>(items.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

void make_limits(Random& random, Job& job) {
  RunnerLimits& limits = job.limits;
  limits.max_model_len = random.between(2, 48);
  for (int64_t g = random.between(1, 2); g > 0; --g) {
    KvSpec spec{.block_size = random.pick<int64_t>({1, 2, 3, 4, 16})};
    if (random.one_in(3)) {
      spec.kind = KvSpec::Kind::kSlidingWindow;
      spec.window = random.between(1, 9);
    } else if (random.one_in(4)) {
      spec.kind = KvSpec::Kind::kMla;
    }
    if (g == 1 && !limits.kv_groups.empty() && random.one_in(2)) spec.block_size = limits.kv_groups[0].block_size;
    const int64_t minimum = blocks_to_run(spec, limits.max_model_len - 1);
    limits.kv_groups.push_back(spec);
    // From too small for the longest request to room for all.
    limits.num_blocks.push_back(std::max<int64_t>(
        1, random.between(random.one_in(5) ? minimum / 2 : minimum, random.one_in(2) ? minimum + 2 : minimum * 4)));
  }
  limits.max_num_seqs = random.between(1, 8);
  limits.max_num_batched_tokens = random.between(1, 64);
  if (random.one_in(2)) limits.max_num_adjusted = random.between(1, limits.max_num_seqs);
  limits.max_logits_rows = random.one_in(4) ? random.between(1, limits.max_num_seqs) : limits.max_num_seqs;
  limits.max_scored_rows = random.between(2, limits.max_num_batched_tokens + 1);
  limits.max_hidden_rows = limits.max_num_batched_tokens;
  limits.max_logprobs = 3;
  limits.vocab_size = random.between(4, 40);
  limits.num_stages = random.one_in(2) ? static_cast<int>(random.between(2, 4)) : 1;
  limits.max_steps_in_flight = limits.num_stages - 1 + static_cast<int>(random.between(1, 3));
  job.model = {limits.kv_groups, limits.vocab_size, static_cast<uint64_t>(random.between(0, 1 << 30)),
               random.one_in(3) ? 60 : 0};
}

/// A list of tokens for every position of the prompt from one on; now and then one too many, which is refused.
void list_prompt_ids(Random& random, const Job& job, Request& request) {
  const auto num_tokens = static_cast<int64_t>(request.prompt_token_ids.size());
  if (num_tokens < 2) return;
  PromptLogprobIds& lists = request.sampling.prompt_logprob_ids;
  lists.start = random.between(0, num_tokens - 2);
  lists.width = random.between(1, job.limits.max_logprobs);
  std::vector<int32_t> ids;
  const int64_t num_rows = num_tokens - 1 - lists.start + (random.one_in(20) ? 1 : 0);
  for (int64_t i = num_rows * lists.width; i > 0; --i)
    ids.push_back(static_cast<int32_t>(random.between(-1, job.limits.vocab_size - 1)));
  lists.ids = std::move(ids);
}

/// What looks at more than the next token: masks and forced tokens of steps, logprobs, prompts that are scored.
void add_constraints(Random& random, const Job& job, Request& request) {
  SamplingParams& sampling = request.sampling;
  const auto id = [&] { return static_cast<int32_t>(random.between(0, job.limits.vocab_size - 1)); };
  const int64_t most = sampling.max_tokens.value_or(20);
  if (random.one_in(4) && sampling.stop.empty()) sampling.min_tokens = random.between(0, most);
  if (random.one_in(4)) sampling.bad_words = {{id(), id()}, {id(), id(), id()}};
  for (int64_t i = random.one_in(6) ? random.between(1, most) : 0; i > 0; --i) {
    sampling.trace_decode_token_ids.push_back(id());
  }
  if (random.one_in(3)) sampling.logprobs = random.between(0, 3);
  if (random.one_in(4)) sampling.prompt_logprobs = random.between(0, 3);
  if (random.one_in(4)) list_prompt_ids(random, job, request);
  if (scores_prompt(sampling) && random.one_in(2)) {
    sampling.max_tokens = 0;
    sampling.min_tokens = 0;
    sampling.trace_decode_token_ids.clear();
  }
}

void want_hidden(Random& random, Request& request) {
  SamplingParams& sampling = request.sampling;
  sampling.hidden_states = random.one_in(3) ? HiddenStates::kLast : HiddenStates::kMean;
  if (!random.one_in(3)) return;
  sampling.max_tokens = 0;
  sampling.min_tokens = 0;
  sampling.trace_decode_token_ids.clear();
}

Request make_request(Random& random, const Job& job, int64_t request_id) {
  Request request;
  request.request_id = request_id;
  const int64_t longest = job.limits.max_model_len + (random.one_in(20) ? 3 : -1);
  const int64_t num_tokens = random.between(random.one_in(50) ? 0 : 1, std::max<int64_t>(1, longest));
  if (random.one_in(2)) request.prompt_token_ids = random.pick(job.openings);
  request.prompt_token_ids.resize(
      std::min(request.prompt_token_ids.size(), static_cast<size_t>(random.one_in(3) ? longest : num_tokens)));
  while (static_cast<int64_t>(request.prompt_token_ids.size()) < num_tokens) {
    request.prompt_token_ids.push_back(static_cast<int32_t>(random.between(0, job.limits.vocab_size - 1)));
  }
  if (random.one_in(4)) request.cache_salt = random.pick<std::string>({"s1", "s2"});
  if (random.one_in(3)) request.sampling.n = random.between(2, 5);
  if (random.one_in(60)) request.prompt_token_ids.push_back(static_cast<int32_t>(job.limits.vocab_size));
  request.random_key = static_cast<uint64_t>(random.between(0, 3));
  if (random.one_in(3)) request.sampling.frequency_penalty = 0.5;  // the fake model does not look at it
  if (!random.one_in(4)) request.sampling.max_tokens = random.between(1, 20);
  request.sampling.ignore_eos = random.one_in(4);
  request.sampling.include_stop_str_in_output = random.one_in(4);
  for (int64_t i = random.between(0, 2); i > 0 && random.one_in(2); --i) {
    request.sampling.stop.push_back(random.pick<std::string>({"ab", "b", "ca", "aa", "bca", "?"}));
  }
  if (random.one_in(4)) {
    request.sampling.stop_token_ids.push_back(static_cast<int32_t>(random.between(0, job.limits.vocab_size - 1)));
  }
  if (job.limits.vocab_size >= 8 && random.one_in(2)) add_constraints(random, job, request);
  if (random.one_in(5)) want_hidden(random, request);
  return request;
}

}  // namespace

int64_t blocks_to_run(const KvSpec& spec, int64_t num_tokens) {
  const int64_t all = (num_tokens + spec.block_size - 1) / spec.block_size;
  if (spec.kind != KvSpec::Kind::kSlidingWindow) return all;
  int64_t most = 0;
  for (int64_t p = 0; p < num_tokens; ++p) {
    const int64_t first = std::max<int64_t>(0, p + 1 - spec.window) / spec.block_size;
    most = std::max(most, p / spec.block_size - first + 1);
  }
  return most;
}

Job make_job(uint64_t seed) {
  Random random(seed);
  Job job;
  make_limits(random, job);
  job.options.scheduler.enable_chunked_prefill = !random.one_in(4);
  job.options.scheduler.enable_prefix_caching = !random.one_in(4);
  job.options.scheduler.waiting_order = random.one_in(2) ? WaitingOrder::kPrefix : WaitingOrder::kArrival;
  job.options.scheduler.long_prefill_token_threshold = random.one_in(4) ? random.between(1, 8) : 0;
  if (random.one_in(4)) job.options.max_logprob_bytes = random.between(0, 1000);
  job.options.scheduler.min_pipeline_tokens = random.between(1, 16);
  job.options.scheduler.max_num_partial_prefills = random.between(0, 3);
  if (random.one_in(2)) job.options.scheduler.first_length_guess = random.between(0, 10);
  job.options.scheduler.watermark = random.one_in(2) ? 0 : 0.01 * static_cast<double>(random.between(1, 40));
  for (int64_t i = random.between(0, 2); i > 0; --i) {
    job.options.eos_token_ids.push_back(static_cast<int32_t>(random.between(0, job.limits.vocab_size - 1)));
  }
  for (int64_t i = 0; i < job.limits.vocab_size; ++i) {
    job.pieces.push_back(random.pick<std::string>({"a", "b", "c", "ab", "bc~", "a~", "xyz", ""}));
  }
  for (int64_t i = random.between(1, 3); i > 0; --i) {
    Ids& opening = job.openings.emplace_back();
    for (int64_t length = random.between(1, job.limits.max_model_len); length > 0; --length) {
      opening.push_back(static_cast<int32_t>(random.between(0, job.limits.vocab_size - 1)));
    }
  }
  int arrival = 0;
  for (int64_t i = random.between(1, 12); i > 0; --i) {
    if (random.one_in(3)) arrival += static_cast<int>(random.between(1, 12));
    job.requests.push_back(make_request(random, job, static_cast<int64_t>(job.requests.size())));
    job.arrivals.push_back(arrival);
  }
  return job;
}

}  // namespace tokenmill::test
