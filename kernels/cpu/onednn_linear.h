#pragma once
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include "kernels/cpu/cpu_linear.h"
#include "kernels/cpu/onednn.h"

namespace tokenmill::cpu {

/// The products of one backend, shared by its linears of equal shape: one per (shape, thread), so that each is used by
/// one thread at a time.
class OnednnProducts {
 public:
  explicit OnednnProducts(std::string required_impl) : required_impl_(std::move(required_impl)) {}
  OnednnMatmul& get(DType dtype, int64_t columns, int64_t k_count, int thread);
  /// Whether the self-test of this shape has passed already; remembers that it has.
  bool mark_verified(DType dtype, int64_t columns, int64_t k_count);

 private:
  using Shape = std::tuple<DType, int64_t, int64_t>;
  std::string required_impl_;
  std::map<std::pair<Shape, int>, std::unique_ptr<OnednnMatmul>> products_;
  std::map<Shape, bool> verified_;
};

/// Linears on oneDNN's brgemm matmul (AVX-512): weights packed once into the layout oneDNN asks for, one shard of
/// columns per thread, each computed by its thread alone. A row's bits are the same for every number of rows, which
/// finish() proves on the linear's own shape: it throws Error(kDevice) when they are not.
int64_t onednn_linear_bytes(const LinearSpec& spec, OnednnProducts& products, int num_threads);
std::unique_ptr<CpuLinear> make_onednn_linear(const LinearSpec& spec, std::span<std::byte> storage,
                                              OnednnProducts& products, Isa isa, int num_threads);

/// Rows that a product of `rows` rows is computed with: few distinct sizes, so that few primitives are made. Up to 16
/// as they are, then padded to multiples of 8 (to 128), 16 (to 256), 32 (to 512) and 64.
int64_t onednn_row_bucket(int64_t rows);
/// Rows of one product; more go in several.
constexpr int64_t kOnednnRowLimit = 1024;

}  // namespace tokenmill::cpu
