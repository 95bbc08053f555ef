#pragma once
#include <array>

#include "kernels/core/tensor.h"

namespace tokenmill {

constexpr int kMaxKvGroups = 4;

/// What varies per step, in device memory at addresses that stay the same from step to step (engine/step_input owns and
/// fills it). T tokens of S sequences are flattened; R logits rows are wanted. Views have the step's (bucket) sizes;
/// padding: token_ids 0 with slot_mapping -1 (written nowhere), sequences of no tokens.
struct StepTensors {
  TensorView token_ids;    ///< [T] i32; -1 - slot: the last token sampled in that slot (SamplingTables::last_token)
  TensorView positions;    ///< [T] i64, absolute
  TensorView cu_seqlens;   ///< [S + 1] i32: tokens of sequence s are [cu_seqlens[s], cu_seqlens[s + 1])
  TensorView seq_lens;     ///< [S] i64: context length including this step's tokens
  TensorView logits_rows;  ///< [R] i32: token index whose logits are wanted
  TensorView row_slots;    ///< [R] i32: the slot each logits row belongs to
  struct Group {
    TensorView block_table;   ///< [S, max_blocks] i32; entry b covers positions [b * block_size, (b + 1) * block_size)
    TensorView slot_mapping;  ///< [T] i64: block id * block_size + offset, or -1
  };
  std::array<Group, kMaxKvGroups> groups;
  int num_groups = 0;
};

/// Per-slot sampling state, device tables of max_num_seqs slots at stable addresses.
struct SamplingTables {
  TensorView temperature;  ///< [slots] f32; 0 = greedy
  TensorView top_p;        ///< [slots] f32; 1 = off
  TensorView min_p;        ///< [slots] f32; 0 = off
  TensorView top_k;        ///< [slots] i32; 0 = off
  TensorView key;          ///< [slots] i64: the sequence's random key (bits)
  TensorView last_token;   ///< [slots] i32: written by Ops::pick
};

}  // namespace tokenmill
