#include "kernels/cuda/cuda_ops.h"

#include <fmt/format.h>

#include <vector>

#include "kernels/core/check.h"
#include "kernels/cuda/attention_paged_mma.h"
#include "kernels/cuda/attention_paged_wgmma.h"
#include "kernels/cuda/cuda_kv_pool.h"
#include "kernels/cuda/cuda_linear.h"

namespace tokenmill::cuda {

std::string describe(const FaultRecord& record) {
  switch (static_cast<Fault>(record.fault)) {
    case Fault::kNone:
      return "nothing";
    case Fault::kRowOutside:
      return fmt::format("row {} of a matrix of {} rows", record.found, record.limit);
    case Fault::kKvSlotOutside:
      return fmt::format("KV slot {} of a pool of {}", record.found, record.limit);
    case Fault::kTopKOfShortlist:
      return fmt::format("a shortlist of a row with top-k {}; it must be 1 to {}", record.found, record.limit);
    case Fault::kShortlistOverflow:
      return fmt::format("a shortlist of {} ids in room for {}", record.found, record.limit);
    case Fault::kNoIdListed:
      return fmt::format("no rank has listed an id for row {} of {}", record.found, record.limit);
  }
  return fmt::format("fault {}", record.fault);
}

CudaOps::CudaOps(Device device, const OpsOptions& options)
    : memory_(device),
      stream_(device),
      fault_(memory_.allocate_host(sizeof(FaultRecord))),
      matmul_(stream_.handle(), memory_.allocate(Matmul::kWorkspaceBytes)),
      slot_arguments_(memory_),
      upload_(device, memory_),
      facts_(device_facts(device)),
      asked_attention_(parse_attention_backend(options.attention_backend)) {
  const int multiprocessors = facts_.num_multiprocessors;
  const AttentionLimits limits{options.attention_part_bytes, options.attention_mates};
  paged_attention_[AttentionBackend::kPagedMma] = std::make_unique<PagedMmaAttention>(memory_, multiprocessors, limits);
  paged_attention_[AttentionBackend::kPagedWgmma] =
      std::make_unique<PagedWgmmaAttention>(memory_, multiprocessors, limits);
  stream_.add_check(this, [this] { check_fault(); });
}

CudaOps::~CudaOps() = default;

std::string CudaOps::describe() const {
  return fmt::format("{} {}, sm_{}, {} multiprocessors, attention {}", to_string(device()), facts_.name,
                     facts_.compute_capability, facts_.num_multiprocessors,
                     describe_attention(asked_attention_, facts_.compute_capability, facts_.smem_per_block_bytes));
}

std::string CudaOps::numerics() const {
  // What else the choice of attention depends on is the model and, through its shared memory, the architecture.
  const std::string attention =
      asked_attention_ == AttentionBackend::kAuto ? "" : "-" + to_string(asked_attention_) + "_attention";
#ifdef TOKENMILL_CUDA_EMULATED
  const char* machine = "-emulated";  // rounds otherwise than a GPU
#else
  const char* machine = "";
#endif
  return fmt::format("cuda-sm_{}{}{}", facts_.compute_capability, machine, attention);
}

void CudaOps::plan(const StepTensors&) {
  for (const auto& [backend, attention] : paged_attention_) attention->start_step();
}

void CudaOps::check_fault() const {
  auto* record = static_cast<FaultRecord*>(fault_.data());
  if (record->fault == 0) return;
  const std::string text = cuda::describe(*record);
  *record = {};
  throw Error(ErrorKind::kInternal, "{}: {}", to_string(device()), text);
}

int64_t CudaOps::workspace_bytes(const WorkspaceRequest& request) const {
  int64_t bytes = Matmul::kWorkspaceBytes;
  for (const auto& [backend, attention] : paged_attention_) {
    std::vector<int> own;
    for (size_t g = 0; g < request.kv_groups.size(); ++g) {
      if (attention_backend(request.kv_groups[g]) == backend) own.push_back(static_cast<int>(g));
    }
    bytes += attention->workspace_bytes(request, own);
  }
  return bytes;
}

void CudaOps::reserve(const WorkspaceRequest& request) {
  for (size_t g = 0; g < request.kv_groups.size(); ++g) {
    PagedAttention* attention = paged_attention(request.kv_groups[g]);
    if (attention != nullptr) attention->reserve(static_cast<int>(g), request);
  }
}

int64_t CudaOps::linear_bytes(const LinearSpec& spec) {
  return spec.out_features * spec.in_features * dtype_size(spec.compute_dtype);
}

std::unique_ptr<Linear> CudaOps::do_make_linear(const LinearSpec& spec, std::span<std::byte> storage) {
  return std::make_unique<DeviceMatrix<Linear>>(upload_, spec, storage, "linear");
}

std::unique_ptr<Embedding> CudaOps::do_make_embedding(const LinearSpec& spec, std::span<std::byte> storage) {
  return std::make_unique<DeviceMatrix<Embedding>>(upload_, spec, storage, "embedding");
}

std::unique_ptr<WeightSink> CudaOps::make_vector_sink(TensorView out, const std::vector<LinearPart>& parts) {
  return cuda::make_vector_sink(upload_, out, parts);
}

void CudaOps::do_linear(TensorView out, TensorView x, const Linear& weights, const LinearCall& call) {
  if (out.cols() == 0) return;
  const void* data = device_matrix(weights).data();
  if (!call.bias.defined() || call.bias.dtype() == out.dtype()) {
    matmul_.run(out, x, data, call.bias, call.residual);
    return;
  }
  // cuBLASLt wants the bias in the type of the result. These sums are f32 already: adding it behind them rounds nothing
  // twice.
  matmul_.run(out, x, data, {}, call.residual);
  add_bias(out, call.bias);
}

int64_t CudaOps::kv_block_bytes(const KvSpec& spec) {
  return kv_page_layout(spec).block_elements * dtype_size(spec.dtype);
}

std::unique_ptr<KvPool> CudaOps::do_make_kv_pool(const KvSpec& spec, int64_t num_blocks, std::span<std::byte> storage) {
  if (PagedAttention* attention = paged_attention(spec)) attention->prepare(spec.dtype, spec.k_dim);
  return std::make_unique<CudaKvPool>(spec, num_blocks, storage);
}

void CudaOps::do_copy_blocks(KvPool& pool, std::span<const BlockCopy> copies) {
  const CudaKvPool& own = cuda_pool(pool);
  for (const BlockCopy copy : copies) {
    TM_CUDA(cudaMemcpyAsync(own.block(copy.destination), own.block(copy.source), static_cast<size_t>(own.block_bytes()),
                            cudaMemcpyDeviceToDevice, stream_.handle()));
  }
}

void CudaOps::do_zero_blocks(KvPool& pool, std::span<const int32_t> block_ids) {
  const CudaKvPool& own = cuda_pool(pool);
  for (const int32_t id : block_ids) {
    TM_CUDA(cudaMemsetAsync(own.block(id), 0, static_cast<size_t>(own.block_bytes()), stream_.handle()));
  }
}

void CudaOps::do_export_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<std::byte> out) {
  const CudaKvPool& own = cuda_pool(pool);
  const int64_t bytes = canonical_block_bytes(pool.spec());
  std::vector<std::byte> block(static_cast<size_t>(own.block_bytes()));
  for (size_t i = 0; i < block_ids.size(); ++i) {
    stream_.copy(block.data(), own.block(block_ids[i]), own.block_bytes());
    stream_.synchronize();
    own.to_canonical(block, out.data() + static_cast<int64_t>(i) * bytes);
  }
}

void CudaOps::do_import_blocks(KvPool& pool, std::span<const int32_t> block_ids, std::span<const std::byte> in) {
  const CudaKvPool& own = cuda_pool(pool);
  const int64_t bytes = canonical_block_bytes(pool.spec());
  std::vector<std::byte> block(static_cast<size_t>(own.block_bytes()));
  for (size_t i = 0; i < block_ids.size(); ++i) {
    own.from_canonical(in.data() + static_cast<int64_t>(i) * bytes, block);
    stream_.copy(own.block(block_ids[i]), block.data(), own.block_bytes());
    stream_.synchronize();
  }
}

void CudaOps::do_attention(TensorView out, TensorView q, const StepTensors& step, KvLayer kv,
                           const AttentionParams& params) {
  if (PagedAttention* attention = paged_attention(kv.pool->spec())) {
    attention->run(stream_.handle(), out, q, step, kv, params);
  } else {
    attention_reference(out, q, step, kv, params);
  }
}

PagedAttention* CudaOps::paged_attention(const KvSpec& spec) const {
  const auto found = paged_attention_.find(attention_backend(spec));
  return found == paged_attention_.end() ? nullptr : found->second.get();
}

AttentionBackend CudaOps::attention_backend(const KvSpec& spec) const {
  return choose_attention(asked_attention_, {.compute_capability = facts_.compute_capability,
                                             .smem_per_block_bytes = facts_.smem_per_block_bytes,
                                             .dtype = spec.dtype,
                                             .k_dim = spec.k_dim,
                                             .v_dim = spec.v_dim});
}

}  // namespace tokenmill::cuda
