#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "app/rows/codec.h"
#include "engine/engine.h"
#include "jobs/index.h"

namespace tokenmill::app {

/// What a look at every row of a job found.
struct RowFindings {
  int64_t num_rows = 0;
  int64_t num_failed = 0;                 ///< would be error rows
  int64_t num_skipped = 0;                ///< passed over because of their length
  int64_t num_runnable = 0;               ///< the others
  int64_t prompt_tokens = 0;              ///< of runnable rows
  int64_t longest_prompt = 0;             ///< tokens
  int64_t most_new_tokens = 0;            ///< that runnable rows may generate, all their samples together
  std::vector<std::string> first_errors;  ///< "FILE:LINE: ...", in row order
};

/// Reads, parses and tokenizes every row and asks the engine whether it could run, without running it. limits: a
/// replica's. The first max_errors messages are kept. Throws Error for files that cannot be read.
RowFindings check_rows(const jobs::Index& index, const io::RecordReaderOptions& reader, const rows::Codec& codec,
                       const text::Tokenizer& tokenizer, const RunnerLimits& limits, const EngineOptions& engine,
                       size_t max_errors);

}  // namespace tokenmill::app
