#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/support/fake_runner.h"

namespace tokenmill::test {

/// A small job for the engine on a fake runner: everything that its results may not depend on varies, and some of its
/// requests must be refused.
struct Job {
  test::FakeModel model;
  RunnerLimits limits;
  EngineOptions options;
  std::vector<std::string> pieces;             // text of each token id
  std::vector<std::vector<int32_t>> openings;  // what prompts begin with
  std::vector<Request> requests;
  std::vector<int> arrivals;  // engine steps before the request is submitted
};

/// The same job for the same seed, on every machine.
Job make_job(uint64_t seed);

/// The blocks without which positions [0, num_tokens) cannot be computed one after the other.
int64_t blocks_to_run(const KvSpec& spec, int64_t num_tokens);

}  // namespace tokenmill::test
