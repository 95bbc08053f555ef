#pragma once
#include <cstdint>
#include <string>

#include "kernels/core/dtype.h"

namespace tokenmill::cuda {

enum class AttentionBackend : uint8_t { kAuto, kReference, kPagedMma, kPagedWgmma };
std::string to_string(AttentionBackend backend);
/// Of a name of --attention-backend. Throws Error(kConfig) naming the choices.
AttentionBackend parse_attention_backend(const std::string& name);

/// What the choice depends on: one device and the heads of one model.
struct AttentionCase {
  int compute_capability = 0;
  int64_t smem_per_block_bytes = 0;
  DType dtype = DType::kF32;
  int64_t k_dim = 0, v_dim = 0;
};

/// The backend of a case: the one asked for, or the first of the table that takes it: paged_wgmma (sm_90), paged_mma
/// (sm_80 and later), both for 16-bit types, heads as their has_kernel says, and a block's shared memory; reference
/// (everything). Throws
/// Error(kConfig) when the one asked for does not take the case.
AttentionBackend choose_attention(AttentionBackend asked, const AttentionCase& what);

/// The table for one device, as a line of text: "paged_wgmma (bfloat16, float16; heads of 64,
/// 128), else paged_mma (bfloat16, float16; heads of 64, 96, 128), else reference".
std::string describe_attention(AttentionBackend asked, int compute_capability, int64_t smem_per_block_bytes);

}  // namespace tokenmill::cuda
