#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/slot_sampling.h"
#include "kernels/kv_pool.h"

namespace tokenmill {

/// A sequence enters a slot (first time, or again after a preemption).
struct NewSlot {
  int32_t slot = 0;
  std::vector<int32_t> token_ids;  ///< all tokens known now: prompt, and generated ones after a preemption
  int64_t num_prompt_tokens = 0;   ///< of token_ids; penalties tell the prompt's from the others
  SlotSampling sampling;
  /// Per KV group, in order of position: found in the cache, copied or new; kNullBlock where the window has passed.
  std::vector<std::vector<int32_t>> block_ids;
  bool operator==(const NewSlot&) const = default;
};

/// Blocks appended to a slot's tables.
struct GrownSlot {
  int32_t slot = 0;
  std::vector<std::vector<int32_t>> block_ids;  ///< per KV group, appended
  bool operator==(const GrownSlot&) const = default;
};

/// Blocks of a slot that its window has left: in each group's table the entries before first become kNullBlock. Nothing
/// reads them any more, and they may be handed out again when the steps before this one are done.
struct ShrunkSlot {
  int32_t slot = 0;
  std::vector<int32_t> first;  ///< per KV group
  bool operator==(const ShrunkSlot&) const = default;
};

/// Where a scheduled token comes from.
enum class TokenSource : uint8_t {
  kLiteral,      ///< the slot's known tokens (prompt, or samples already collected)
  kLastSampled,  ///< the last token sampled in this slot, which may not have been collected yet; num_tokens is 1
};

/// One slot's share of the step: positions [start, start + num_tokens).
struct ScheduledSlot {
  int32_t slot = 0;
  int64_t start = 0;
  int32_t num_tokens = 0;
  TokenSource source = TokenSource::kLiteral;
  /// Offsets inside [0, num_tokens) whose logits are wanted, ascending; each gives one sampled token.
  std::vector<int32_t> logits_rows;
  /// Of those tokens, one per logits row; empty: none has any.
  std::vector<StepConstraints> constraints;
  /// Offsets [scored_begin, scored_begin + num_scored) inside [0, num_tokens): the prompt token behind each is scored.
  int32_t scored_begin = 0, num_scored = 0;
  /// Tokens whose logprobs are reported at each of these positions besides what SlotSampling asks for: as many for
  /// each, position after position, -1 where one has fewer. Empty: none at any.
  std::vector<int32_t> scored_lists;
  /// Offsets [hidden_begin, hidden_begin + num_hidden) inside [0, num_tokens): prompt positions whose hidden states go
  /// into the row's, each once and in order of position; hidden_ends: they are the last.
  int32_t hidden_begin = 0, num_hidden = 0;
  bool hidden_ends = false;
  /// The step's result has an entry for the slot.
  bool brings_results() const { return !logits_rows.empty() || num_scored > 0 || num_hidden > 0; }
  int64_t list_width() const { return num_scored > 0 ? static_cast<int64_t>(scored_lists.size()) / num_scored : 0; }
  bool operator==(const ScheduledSlot&) const = default;
};

/// Block copies of one group (copy-on-write), done before the step's writes.
struct GroupCopies {
  int32_t group = 0;
  std::vector<BlockCopy> copies;
  bool operator==(const GroupCopies&) const = default;
};

/// Tokens that a slot's sequence has been given since the last plan, for ranks that did not see them sampled.
struct SampledTokens {
  int32_t slot = 0;
  int64_t position = 0;  ///< of the first
  std::vector<int32_t> token_ids;
  bool operator==(const SampledTokens&) const = default;
};

/// One step of a replica as deltas on stable slots (0 <= slot < max_num_seqs). Made by the leader's scheduler,
/// broadcast as bytes; followers replay plans and never schedule. Order of effect: shrunk, finished, preempted,
/// sampled, fresh_blocks, copies, new_slots, grown, then the scheduled slots in their order (the flattened batch
/// follows it).
struct StepPlan {
  uint64_t step_id = 0;
  bool dummy = false;  ///< nothing to compute, but step in time with the others
  bool stop = false;   ///< the last plan: followers leave their loop
  std::vector<ShrunkSlot> shrunk;
  std::vector<int32_t> finished;   ///< slots released
  std::vector<int32_t> preempted;  ///< slots released, their sequences come back later as new
  /// In replicas of several pipeline stages (LeaderRunner fills it): of sequences that are still in their slots.
  std::vector<SampledTokens> sampled;
  /// Per group: blocks handed out now that have been used before; their stale values must not matter.
  std::vector<std::vector<int32_t>> fresh_blocks;
  std::vector<GroupCopies> copies;
  std::vector<NewSlot> new_slots;
  std::vector<GrownSlot> grown;
  std::vector<ScheduledSlot> scheduled;

  int64_t num_tokens() const;       ///< sum of scheduled num_tokens
  int64_t num_hidden() const;       ///< sum of scheduled num_hidden
  int64_t num_logits_rows() const;  ///< sum of scheduled logits_rows
  bool operator==(const StepPlan&) const = default;
};

/// Little-endian, versioned (first byte: format version). deserialize throws Error(kInternal) on a version it does not
/// know, on truncation and on counts that exceed the bytes.
std::vector<std::byte> serialize(const StepPlan& plan);
StepPlan deserialize_step_plan(std::span<const std::byte> bytes);

}  // namespace tokenmill
