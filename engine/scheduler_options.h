#pragma once
#include <cstdint>

namespace tokenmill {

enum class WaitingOrder : uint8_t {
  kArrival,  ///< first come, first served
  kPrefix,   ///< PrefixPlan's: shared beginnings one after the other, the longest first
};

struct SchedulerOptions {
  /// False: a prompt is computed in one step or not yet. (One that is scored may still take several: the scores of a
  /// step have their own limit.)
  bool enable_chunked_prefill = true;
  bool enable_prefix_caching = true;         ///< false: blocks are shared by the samples of a request only
  int64_t long_prefill_token_threshold = 0;  ///< tokens of one prompt in a step at most; 0: as many as fit
  int64_t max_num_partial_prefills = 0;      ///< prompts in progress at once; 0: as many as the step's tokens allow
  /// In a pipeline prompts are cut so that all plans are of about one size, but not into plans of less tokens than
  /// these: about what a step computes in the time it takes to read the weights.
  int64_t min_pipeline_tokens = 64;
  int64_t first_length_guess = 256;          ///< tokens a row is thought to generate before enough have finished
  WaitingOrder waiting_order = WaitingOrder::kArrival;
  double watermark = 0.01;  ///< share of the blocks kept free when a sequence enters; below 1
};

}  // namespace tokenmill
