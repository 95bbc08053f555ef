#pragma once
#include <array>
#include <cstdint>
#include <limits>

#include "kernels/core/tensor.h"

namespace tokenmill {

constexpr int kMaxKvGroups = 4;

/// R rows of logits and what is asked of the token chosen from each. All in host-filled device memory.
struct LogitsRows {
  TensorView tokens;      ///< [R] i32: index of the token whose logits are wanted
  TensorView slots;       ///< [R] i32: the slot each row belongs to
  TensorView forced_ids;  ///< [R] i32: taken instead of a sampled one; -1: sampled
  TensorView
      masked_offsets;     ///< [R + 1] i32: row r must not give masked_ids[masked_offsets[r] .. masked_offsets[r + 1])
  TensorView masked_ids;  ///< [any] i32
  /// Known to the host: how many ids of a shard each row needs at most of a vocabulary spread over ranks (the largest
  /// shortlist_capacity() of its rows). 0: a row needs whole logits, or it is not known.
  int64_t shortlist = 0;
};

/// R rows of logits of which logprobs are reported.
struct LogprobRows {
  TensorView token_ids;     ///< [R] i32: the token whose logprob and rank are wanted
  TensorView num_top;       ///< [R] i32: so many others besides; -1: nothing at all for this row
  TensorView listed_slots;  ///< [R] i32: the others are SamplingTables::listed_ids of that slot; -1: the most likely
};

/// What varies per step, in device memory at addresses that stay the same from step to step (engine/step_input owns and
/// fills it). T tokens of S sequences are flattened; R of them have their next token sampled, and N prompt positions
/// are scored. Views have the step's (bucket) sizes; padding: token_ids 0 with slot_mapping -1 (written nowhere),
/// sequences of no tokens.
struct StepTensors {
  TensorView token_ids;      ///< [T] i32; -1 - slot: the last token sampled in that slot (SamplingTables::last_token)
  TensorView positions;      ///< [T] i64, absolute
  TensorView cu_seqlens;     ///< [S + 1] i32: tokens of sequence s are [cu_seqlens[s], cu_seqlens[s + 1])
  TensorView seq_lens;       ///< [S] i64: context length including this step's tokens
  LogitsRows rows;           ///< R
  LogprobRows sampled;       ///< R; token_ids undefined: they are what was sampled. num_top undefined: no row wants any
  TensorView scored_tokens;  ///< [N] i32: index of the token behind which a prompt token is scored
  LogprobRows scored;        ///< N; listed_slots name rows of scored_lists
  TensorView scored_lists;   ///< [N, K] i32; undefined: no scored row has a list
  struct Group {
    TensorView block_table;   ///< [S, max_blocks] i32; entry b covers positions [b * block_size, (b + 1) * block_size)
    TensorView slot_mapping;  ///< [T] i64: block id * block_size + offset, or -1
  };
  std::array<Group, kMaxKvGroups> groups;
  int num_groups = 0;
};

/// Bits of SamplingTables::adjust.
constexpr int32_t kAdjustBias = 1;    ///< the slot's row of bias is added
constexpr int32_t kAdjustCounts = 2;  ///< its row of counts is kept, and the penalties apply

/// The sign bit of a count: the id stands in the prompt. The other bits count, with it and without it.
constexpr int32_t kInPrompt = std::numeric_limits<int32_t>::min();

/// Per-slot sampling state, device tables of max_num_seqs slots at stable addresses. The two tables per id are large
/// (8 bytes per slot and id); rows that adjust does not name are neither read nor written. With tensor parallelism
/// every rank keeps them for the whole vocabulary.
struct SamplingTables {
  TensorView temperature;         ///< [slots] f32; 0 = greedy
  TensorView top_p;               ///< [slots] f32; 1 = off
  TensorView min_p;               ///< [slots] f32; 0 = off
  TensorView top_k;               ///< [slots] i32; 0 = off
  TensorView key;                 ///< [slots] i64: the sequence's random key (bits)
  TensorView last_token;          ///< [slots] i32: written by Ops::pick
  TensorView adjust;              ///< [slots] i32: kAdjust bits; undefined: no slot is adjusted
  TensorView presence_penalty;    ///< [slots] f32
  TensorView frequency_penalty;   ///< [slots] f32
  TensorView repetition_penalty;  ///< [slots] f32
  TensorView listed_ids;          ///< [slots, most per slot] i32: whose logprobs are reported
  TensorView counts;              ///< [slots, vocab_size] i32: how often each id was generated, | kInPrompt
  TensorView bias;                ///< [slots, vocab_size] f32; minus infinity: masked
};

}  // namespace tokenmill
