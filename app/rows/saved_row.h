#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/request.h"

namespace tokenmill::rows {

/// What an unfinished row had come to, as one line of JSON for the journal:
///   {"row", "prompt_tokens", "samples": [{"ids": [...], "sum", "logprobs": [[id, logprob, rank, id, ...], ...]}, ...],
///    "prompt_logprobs": [[id, logprob, rank, ...], ...], "prompt_token_id_logprobs": [...]}
/// Floating-point numbers are their bits as an integer: what comes back is what was written. Empty lists are left out.
std::string format_saved(int64_t row, int64_t num_prompt_tokens, const RequestProgress& progress);

/// The same back, for a request that has this prompt; nullopt when the line does not fit the request (another number of
/// prompt tokens or samples, ids beyond the vocabulary). Throws Error(kInput) when it is no such line.
std::optional<RequestProgress> parse_saved(std::string_view line, const Request& request, int64_t vocab_size);

}  // namespace tokenmill::rows
