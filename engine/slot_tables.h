#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/slot_sampling.h"
#include "kernels/ops.h"

namespace tokenmill {

/// The device tables of SamplingTables for max_num_seqs slots, of which those below num_adjusted have rows in the two
/// tables per id. These are taken as a whole, but a CPU's memory behind a row is first touched when a slot needs it.
class SlotTables {
 public:
  /// num_adjusted 0: of a rank that chooses no tokens, whose slots may have penalties and biases all the same.
  SlotTables(Ops& ops, int64_t max_num_seqs, int64_t num_adjusted, int64_t vocab_size);
  /// Device memory that such tables take: mostly 8 bytes per adjusted slot and id of the vocabulary.
  static int64_t device_bytes(int64_t max_num_seqs, int64_t num_adjusted, int64_t vocab_size);
  /// Host memory that the parameters are staged in.
  static int64_t host_bytes(int64_t max_num_seqs);

  const SamplingTables& tables() const { return tables_; }
  /// Enqueues one slot's parameters and its biases; last_token and counts are left alone.
  void set(int32_t slot, const SlotSampling& sampling);
  /// Enqueues the counts of a slot with penalties: token_ids are its tokens so far, prompt first.
  void count(int32_t slot, std::span<const int32_t> token_ids, int64_t num_prompt_tokens);

 private:
  Ops& ops_;
  Buffer host_, device_, id_tables_;
  SamplingTables tables_;
  SamplingTables staging_;
  std::vector<int32_t> bias_ids_;  // reused
  std::vector<float> bias_values_;
};

}  // namespace tokenmill
