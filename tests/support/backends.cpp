#include "tests/support/backends.h"

#include <algorithm>
#include <cstdio>

#ifdef TOKENMILL_CUDA
#include "kernels/cuda/cuda_device.h"
#endif

namespace tokenmill::test {

std::vector<std::string> cpu_isas() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found;
    for (const char* isa : {"avx2", "avx512", "avx512_bf16"}) {
      try {
        make_ops({}, {.num_threads = 1, .cpu_isa = isa});
        found.push_back(isa);
      } catch (const Error&) {
        std::fprintf(stderr, "skipping --cpu-isa %s: this CPU does not have it\n", isa);
      }
    }
    return found;
  }();
  return names;
}

std::vector<Ops*> backends() {
  static const std::vector<std::unique_ptr<Ops>> all = [] {
    std::vector<std::unique_ptr<Ops>> made;
    for (const std::string& isa : cpu_isas()) made.push_back(cpu_backend(isa, 2));
#ifdef TOKENMILL_CUDA
    if (cuda::num_visible_devices() > 0) {
      made.push_back(make_ops(cuda::select_device(0), {}));
    } else {
      std::fprintf(stderr, "skipping cuda: no device is visible\n");
    }
#endif
    return made;
  }();
  std::vector<Ops*> list;
  for (const auto& ops : all) list.push_back(ops.get());
  return list;
}

bool is_slow([[maybe_unused]] const Ops& ops) {
#ifdef TOKENMILL_CUDA_EMULATED
  return ops.device().kind == DeviceKind::kCuda;
#else
  return false;
#endif
}

std::unique_ptr<Ops> cpu_backend(const std::string& isa, int num_threads) {
  return make_ops({}, {.num_threads = num_threads, .cpu_isa = isa});
}

std::unique_ptr<Ops> another(const Ops& ops) {
  if (ops.device().kind != DeviceKind::kCpu) return make_ops(ops.device(), {});
  return cpu_backend(ops.numerics().substr(4), 2);
}

std::vector<std::byte> download(Ops& ops, const Buffer& buffer) {
  std::vector<std::byte> bytes(static_cast<size_t>(buffer.num_bytes()));
  ops.stream().copy(bytes.data(), buffer.data(), buffer.num_bytes());
  ops.stream().synchronize();
  return bytes;
}

void push(WeightSink& sink, int part, std::span<const std::byte> bytes) {
  const auto granule = static_cast<size_t>(sink.granularity(part));
  size_t count = 1;
  for (size_t offset = 0; offset < bytes.size(); ++count) {
    const size_t size = std::min(bytes.size() - offset, count * granule);
    sink.write(part, static_cast<int64_t>(offset), bytes.subspan(offset, size));
    offset += size;
  }
}

LinearSpec plain_spec(int64_t out_features, int64_t in_features, DType dtype) {
  const WeightFormat format = dtype == DType::kF32   ? WeightFormat::kF32
                              : dtype == DType::kF16 ? WeightFormat::kF16
                                                     : WeightFormat::kBF16;
  LinearSpec spec{.in_features = in_features, .out_features = out_features, .compute_dtype = dtype, .parts = {}};
  spec.parts.push_back({.format = format,
                        .source_rows = out_features,
                        .source_cols = in_features,
                        .row_begin = 0,
                        .row_end = out_features,
                        .col_begin = 0,
                        .col_end = in_features});
  return spec;
}

TestLinear::TestLinear(Ops& ops, const HostTensor& w) {
  const LinearSpec spec = plain_spec(w.view().rows(), w.view().cols(), w.view().dtype());
  storage_ = ops.memory().allocate(ops.linear_bytes(spec));
  linear_ = ops.make_linear(spec, storage_.bytes());
  push(*linear_, 0, w.bytes());
  linear_->finish();
}

TestEmbedding::TestEmbedding(Ops& ops, const HostTensor& w) {
  const LinearSpec spec = plain_spec(w.view().rows(), w.view().cols(), w.view().dtype());
  storage_ = ops.memory().allocate(ops.embedding_bytes(spec));
  embedding_ = ops.make_embedding(spec, storage_.bytes());
  push(*embedding_, 0, w.bytes());
  embedding_->finish();
}

}  // namespace tokenmill::test
