#pragma once
#include <array>
#include <string>
#include <string_view>

#include "kernels/core/histogram.h"

namespace tokenmill {

/// What varies from row to row and from step to step on a replica. Seconds; defined in engine/README.md.
struct Distributions {
  Histogram queue_s, prefill_s, decode_s, inference_s, ttft_s, itl_s, tpot_s, e2e_s;
  Histogram prompt_tokens, generation_tokens;  ///< per answered row
  Histogram step_tokens;                       ///< per step: tokens computed

  void merge(const Distributions& other);
  std::string serialize() const;
  /// Throws Error(kInternal) for bytes that are none.
  static Distributions deserialize(std::string_view bytes);
};

/// One of them by name, for reports.
struct NamedDistribution {
  const char* name;
  Histogram Distributions::*member;
};

inline constexpr std::array<NamedDistribution, 11> kDistributions = {{
    {"queue_s", &Distributions::queue_s},
    {"prefill_s", &Distributions::prefill_s},
    {"decode_s", &Distributions::decode_s},
    {"inference_s", &Distributions::inference_s},
    {"ttft_s", &Distributions::ttft_s},
    {"itl_s", &Distributions::itl_s},
    {"tpot_s", &Distributions::tpot_s},
    {"e2e_s", &Distributions::e2e_s},
    {"prompt_tokens", &Distributions::prompt_tokens},
    {"generation_tokens", &Distributions::generation_tokens},
    {"step_tokens", &Distributions::step_tokens},
}};

}  // namespace tokenmill
