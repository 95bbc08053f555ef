#include "kernels/cuda/attention_backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "kernels/core/error.h"
#include "kernels/cuda/attention_paged_mma.h"

namespace tokenmill::cuda {
namespace {

constexpr int kLeastCapability = 80;
constexpr int64_t kHeadDims[] = {64, 96, 128, 256};

std::vector<int64_t> head_dims_that_fit(int64_t smem_per_block_bytes) {
  std::vector<int64_t> dims;
  for (const int64_t dim : kHeadDims) {
    if (PagedMmaAttention::shared_bytes(dim) <= smem_per_block_bytes) dims.push_back(dim);
  }
  return dims;
}

bool takes(const AttentionCase& what) {
  return what.compute_capability >= kLeastCapability &&
         PagedMmaAttention::has_kernel(what.dtype, what.k_dim, what.v_dim) &&
         PagedMmaAttention::shared_bytes(what.k_dim) <= what.smem_per_block_bytes;
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
  }
  return "?";
}

AttentionBackend parse_attention_backend(const std::string& name) {
  for (const auto backend : {AttentionBackend::kAuto, AttentionBackend::kReference, AttentionBackend::kPagedMma}) {
    if (name == to_string(backend)) return backend;
  }
  throw Error(ErrorKind::kConfig, "--attention-backend {}: choose auto, reference or paged_mma", name);
}

AttentionBackend choose_attention(AttentionBackend asked, const AttentionCase& what) {
  if (asked == AttentionBackend::kReference) return asked;
  if (takes(what)) return AttentionBackend::kPagedMma;
  if (asked == AttentionBackend::kAuto) return AttentionBackend::kReference;
  throw Error(ErrorKind::kConfig,
              "--attention-backend paged_mma takes bfloat16 and float16 with equal key and value sizes of {} on this "
              "device (sm_{}, {} bytes of shared memory per block); this model has {} with sizes of {} and {}; choose "
              "auto or reference",
              fmt::join(head_dims_that_fit(what.smem_per_block_bytes), ", "), what.compute_capability,
              what.smem_per_block_bytes, to_string(what.dtype), what.k_dim, what.v_dim);
}

std::string describe_attention(AttentionBackend asked, int compute_capability, int64_t smem_per_block_bytes) {
  const std::vector<int64_t> dims = head_dims_that_fit(smem_per_block_bytes);
  if (asked == AttentionBackend::kReference || compute_capability < kLeastCapability || dims.empty()) {
    return "reference";
  }
  const std::string heads = fmt::format("paged_mma (bfloat16, float16; heads of {})", fmt::join(dims, ", "));
  return asked == AttentionBackend::kAuto ? heads + ", else reference" : heads;
}

}  // namespace tokenmill::cuda
