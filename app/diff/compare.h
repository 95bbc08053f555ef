#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "io/json.h"

namespace tokenmill::diff {

/// Where two rows differ and what stands there, cut for display.
struct Difference {
  std::string field;  ///< "outputs[0].text", "response.body.choices[0].finish_reason"
  std::string a, b;   ///< JSON text, or "absent"
  std::string note;   ///< may be empty: "different from character 12 on"
};

struct RowComparison {
  std::optional<Difference> difference;  ///< the first one; empty: equal
  /// Logprobs of rows that are equal otherwise: the largest distance, whether or not within the tolerance, and how many
  /// were compared.
  double max_logprob_distance = 0;
  int64_t num_logprobs = 0;
};

/// Compares every member of two result rows of one format, native or OpenAI, but these:
///   - numbers that are logprobs (cumulative_logprob, and what logprobs and prompt_logprobs hold, without ids, ranks
///   and
///     positions) may be up to logprob_tolerance apart;
///   - the place "FILE:LINE: " in front of an error's message does not count: it names the job's input;
///   - what the row is not: native `row`; OpenAI `id`, `request_id`, `model` and `created`.
/// Members are compared by name in any order. A difference in anything else goes before one in logprobs.
RowComparison compare_rows(const io::JsonValue& a, const io::JsonValue& b, double logprob_tolerance);

/// True for a row of OpenAI's batch output: custom_id and response.
bool is_openai_result(const io::JsonValue& row);

/// A field's name without list positions: "outputs[].text".
std::string without_positions(const std::string& field);

}  // namespace tokenmill::diff
