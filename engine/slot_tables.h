#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/slot_sampling.h"
#include "kernels/ops.h"

namespace tokenmill {

/// The device tables of SamplingTables for max_num_seqs slots and one more, greedy and never set, for rows that are
/// padding. Slots below num_adjusted have rows in the two tables per id. These are taken as a whole, but a CPU's memory
/// behind a row is first touched when a slot needs it.
class SlotTables {
 public:
  /// num_adjusted 0: of a rank that chooses no tokens, whose slots may have penalties and biases all the same.
  /// Parameters on their way to the device have host memory of their own for each step in flight.
  SlotTables(Ops& ops, int64_t max_num_seqs, int64_t num_adjusted, int64_t vocab_size, int max_steps_in_flight = 1);
  /// Device memory that such tables take: mostly 8 bytes per adjusted slot and id of the vocabulary.
  static int64_t device_bytes(int64_t max_num_seqs, int64_t num_adjusted, int64_t vocab_size);
  /// Host memory that the parameters of one step are staged in.
  static int64_t host_bytes(int64_t max_num_seqs);

  const SamplingTables& tables() const { return tables_; }
  /// Stages one slot's parameters for send(), and enqueues its biases; last_token and counts are left alone. flight: of
  /// the step that they are for; at most once per slot and step.
  void set(int32_t slot, const SlotSampling& sampling, int flight = 0);
  /// Enqueues what has been staged.
  void send();
  /// Enqueues the counts of a slot with penalties: token_ids are its tokens so far, prompt first.
  void count(int32_t slot, std::span<const int32_t> token_ids, int64_t num_prompt_tokens);

 private:
  Ops& ops_;
  std::vector<Buffer> host_;  // by flight
  Buffer device_, id_tables_;
  SamplingTables tables_;
  std::vector<SamplingTables> staging_;  // over host_
  std::vector<CopyPiece> pieces_;        // staged
  std::vector<int32_t> bias_ids_;  // reused
  std::vector<float> bias_values_;
};

}  // namespace tokenmill
