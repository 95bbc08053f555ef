#pragma once
#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "engine/sample_constraints.h"

/// What is wrong with a row, found by the engine: the errors that it makes, and why it would not take a request.
namespace tokenmill {

RequestError invalid_request(FieldError error);
/// kind: "prompt" or "generated"; number: 1-based, of the token.
RequestError non_finite_logits(const char* kind, int64_t number);
RequestError non_finite_hidden_state(int64_t index);
RequestError nothing_allowed(int64_t number);
/// A sample's generated token `number` would exceed allowed_bytes; num_entries: reported per token.
RequestError too_many_logprobs(int64_t number, int64_t num_entries, int64_t allowed_bytes);

/// Host memory of the logprobs of its prompt, once they are there.
int64_t prompt_logprob_bytes(const Request& request, int64_t vocab_size);

/// Why the request can never run here, whatever the blocks; nothing when it can.
std::optional<RequestError> check_request(const Request& request, const SampleConstraints& constraints,
                                          const RunnerLimits& limits, const EngineOptions& options);

}  // namespace tokenmill
