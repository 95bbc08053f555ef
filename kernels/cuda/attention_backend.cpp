#include "kernels/cuda/attention_backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <climits>
#include <vector>

#include "kernels/core/error.h"
#include "kernels/cuda/attention_paged_mma.h"
#include "kernels/cuda/attention_paged_wgmma.h"

namespace tokenmill::cuda {
namespace {

constexpr int64_t kHeadDims[] = {64, 96, 128, 256};

/// A backend with matrix instructions, and what it takes.
struct Entry {
  AttentionBackend backend;
  int least_capability, last_capability;
  bool (*has_kernel)(DType, int64_t, int64_t);
  int64_t (*shared_bytes)(int64_t);

  bool runs_on(int compute_capability) const {
    return compute_capability >= least_capability && compute_capability <= last_capability;
  }
  bool takes(const AttentionCase& what) const {
    return runs_on(what.compute_capability) && has_kernel(what.dtype, what.k_dim, what.v_dim) &&
           shared_bytes(what.k_dim) <= what.smem_per_block_bytes;
  }
  /// Head sizes that it has on a device.
  std::vector<int64_t> head_dims(int compute_capability, int64_t smem_per_block_bytes) const {
    std::vector<int64_t> dims;
    for (const int64_t dim : kHeadDims) {
      if (takes({compute_capability, smem_per_block_bytes, DType::kBF16, dim, dim})) dims.push_back(dim);
    }
    return dims;
  }
};

/// In order of choice; reference takes what is left. wgmma is Hopper's alone (sm_90a).
constexpr Entry kTable[] = {
    {AttentionBackend::kPagedWgmma, 90, 90, PagedWgmmaAttention::has_kernel, PagedWgmmaAttention::shared_bytes},
    {AttentionBackend::kPagedMma, 80, INT_MAX, PagedMmaAttention::has_kernel, PagedMmaAttention::shared_bytes}};

constexpr AttentionBackend kAll[] = {AttentionBackend::kAuto, AttentionBackend::kReference, AttentionBackend::kPagedMma,
                                     AttentionBackend::kPagedWgmma};

[[noreturn]] void refuse(const Entry& entry, const AttentionCase& what) {
  const std::string name = to_string(entry.backend);
  if (!entry.runs_on(what.compute_capability)) {
    throw Error(ErrorKind::kConfig,
                "--attention-backend {} is for sm_{}{}; this device is sm_{}; choose auto or reference", name,
                entry.least_capability, entry.last_capability == INT_MAX ? " and later" : "", what.compute_capability);
  }
  throw Error(ErrorKind::kConfig,
              "--attention-backend {} takes bfloat16 and float16 with equal key and value sizes of {} on this device "
              "(sm_{}, {} bytes of shared memory per block); this model has {} with sizes of {} and {}; choose auto or "
              "reference",
              name, fmt::join(entry.head_dims(what.compute_capability, what.smem_per_block_bytes), ", "),
              what.compute_capability, what.smem_per_block_bytes, to_string(what.dtype), what.k_dim, what.v_dim);
}

}  // namespace

std::string to_string(AttentionBackend backend) {
  switch (backend) {
    case AttentionBackend::kAuto:
      return "auto";
    case AttentionBackend::kReference:
      return "reference";
    case AttentionBackend::kPagedMma:
      return "paged_mma";
    case AttentionBackend::kPagedWgmma:
      return "paged_wgmma";
  }
  return "?";
}

AttentionBackend parse_attention_backend(const std::string& name) {
  for (const AttentionBackend backend : kAll) {
    if (name == to_string(backend)) return backend;
  }
  throw Error(ErrorKind::kConfig, "--attention-backend {}: choose auto, reference, paged_mma or paged_wgmma", name);
}

AttentionBackend choose_attention(AttentionBackend asked, const AttentionCase& what) {
  if (asked == AttentionBackend::kReference) return asked;
  for (const Entry& entry : kTable) {
    if (asked != AttentionBackend::kAuto && asked != entry.backend) continue;
    if (entry.takes(what)) return entry.backend;
    if (asked == entry.backend) refuse(entry, what);
  }
  return AttentionBackend::kReference;
}

std::string describe_attention(AttentionBackend asked, int compute_capability, int64_t smem_per_block_bytes) {
  std::vector<std::string> choices;
  for (const Entry& entry : kTable) {
    if (asked != AttentionBackend::kAuto && asked != entry.backend) continue;
    const std::vector<int64_t> dims = entry.head_dims(compute_capability, smem_per_block_bytes);
    if (!dims.empty()) {
      choices.push_back(
          fmt::format("{} (bfloat16, float16; heads of {})", to_string(entry.backend), fmt::join(dims, ", ")));
    }
  }
  if (asked == AttentionBackend::kAuto || choices.empty()) choices.emplace_back("reference");
  return fmt::format("{}", fmt::join(choices, ", else "));
}

}  // namespace tokenmill::cuda
