#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/model_runner.h"
#include "engine/models/checkpoint.h"
#include "engine/models/loader.h"
#include "io/json.h"

namespace tokenmill::test {

/// A tiny model of tests/data with its runner: 192 positions, blocks of 16.
struct Loaded {
  Loaded(Ops& ops, const std::string& name, int64_t max_num_seqs, int64_t max_tokens, DType dtype = DType::kF32,
         int64_t num_blocks = 40, int steps_in_flight = 1)
      : checkpoint(std::string(TM_TEST_DATA) + "/models/" + name),
        builder(ops, checkpoint.weights(), dtype),
        decoder(checkpoint.config(), whole_model(checkpoint.config()), 192, builder) {
    weights = ops.memory().allocate(builder.num_bytes());
    load_weights(builder.place({static_cast<std::byte*>(weights.data()), static_cast<size_t>(weights.num_bytes())}));
    limits.kv_groups = decoder.kv_specs(dtype, 16);
    limits.num_blocks.assign(limits.kv_groups.size(), num_blocks);
    limits.max_num_seqs = limits.max_logits_rows = max_num_seqs;
    limits.max_num_batched_tokens = max_tokens;
    limits.max_steps_in_flight = steps_in_flight;
    limits.max_scored_rows = 32;
    limits.max_hidden_rows = max_tokens;
    limits.max_model_len = 192;
    limits.vocab_size = limits.max_logprobs = checkpoint.config().vocab_size;
    runner = std::make_unique<ModelRunner>(ops, decoder, dtype, limits);
  }
  Checkpoint checkpoint;
  WeightBuilder builder;
  Decoder decoder;
  Buffer weights;
  RunnerLimits limits;
  std::unique_ptr<ModelRunner> runner;
};

inline std::vector<int32_t> ids_of(const io::JsonValue& list) {
  std::vector<int32_t> out;
  for (const io::JsonValue& v : list.items()) out.push_back(static_cast<int32_t>(v.as_int64()));
  return out;
}

/// Submits all requests, runs until the engine is idle, and returns the outputs by request_id (0, 1, ...).
inline std::vector<RequestOutput> run_all(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& request : requests) engine.submit(request);
  while (engine.step()) {
  }
  std::vector<RequestOutput> outputs(requests.size());
  for (RequestOutput& output : engine.take_finished()) {
    outputs.at(static_cast<size_t>(output.request_id)) = std::move(output);
  }
  return outputs;
}

}  // namespace tokenmill::test
