#include "kernels/cpu/onednn.h"

#include <omp.h>

#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "kernels/core/check.h"

namespace tokenmill::cpu {
namespace {

/// Newer instruction sets (AMX) are not known to keep bits equal; must come before the first primitive of the process.
void pin_isa() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16) == dnnl::status::success) return;
    throw Error(ErrorKind::kInternal, "oneDNN was used before its instruction sets could be limited to AVX512-BF16");
  });
}

/// oneDNN asks OpenMP how many threads to use: one, in each thread that comes here. libgomp then starts none.
void compute_alone() {
  thread_local const bool done = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

dnnl::memory::data_type data_type(DType dtype) {
  return dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

/// Offsets in elements of all indices of one dimension of a blocked layout, padding included.
std::vector<int64_t> dimension_offsets(const dnnl::memory::desc& desc, int dimension) {
  const dnnl_memory_desc_t& md = desc.data;
  TM_ASSERT(md.format_kind == dnnl_blocked && md.ndims == 2 && md.offset0 == 0, "oneDNN's weights are not blocked");
  const dnnl_blocking_desc_t& blocking = md.format_desc.blocking;
  int64_t block = 1;
  for (int b = 0; b < blocking.inner_nblks; ++b) {
    if (blocking.inner_idxs[b] == dimension) block *= blocking.inner_blks[b];
  }
  std::vector<int64_t> offsets(static_cast<size_t>(md.padded_dims[dimension]));
  for (size_t i = 0; i < offsets.size(); ++i) {
    int64_t offset = static_cast<int64_t>(i) / block * blocking.strides[dimension];
    int64_t rest = static_cast<int64_t>(i) % block, stride = 1;
    for (int b = blocking.inner_nblks - 1; b >= 0; --b) {
      if (blocking.inner_idxs[b] == dimension) {
        offset += rest % blocking.inner_blks[b] * stride;
        rest /= blocking.inner_blks[b];
      }
      stride *= blocking.inner_blks[b];
    }
    offsets[i] = offset;
  }
  return offsets;
}

}  // namespace

struct OnednnMatmul::Impl {
  struct Product {
    dnnl::matmul primitive;
    dnnl::memory a, out, scratchpad;
    int64_t scratchpad_bytes;
    std::unordered_map<int, dnnl::memory> arguments;
    std::string name;
  };
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::memory::data_type type;
  int64_t columns, k_count;
  dnnl::memory::desc weights;
  std::unordered_map<const std::byte*, dnnl::memory> packed_weights;
  std::map<std::tuple<int64_t, int64_t, int64_t>, Product> products;

  dnnl::matmul::primitive_desc describe(int64_t rows, int64_t lda, int64_t ldo, const dnnl::memory::desc& b) const {
    using Desc = dnnl::memory::desc;
    const Desc a({rows, k_count}, type, dnnl::memory::dims{lda, 1});
    const Desc c({rows, columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{ldo, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return {dnnl::matmul::desc(a, b, c), attributes, engine};
  }

  Product& product(int64_t rows, int64_t lda, int64_t ldo) {
    const auto key = std::make_tuple(rows, lda, ldo);
    if (const auto found = products.find(key); found != products.end()) return found->second;
    const auto pd = describe(rows, lda, ldo, weights);
    Product made{dnnl::matmul(pd),
                 dnnl::memory(pd.src_desc(), engine, nullptr),
                 dnnl::memory(pd.dst_desc(), engine, nullptr),
                 dnnl::memory(pd.scratchpad_desc(), engine, nullptr),
                 static_cast<int64_t>(pd.scratchpad_desc().get_size()),
                 {},
                 pd.impl_info_str()};
    made.arguments = {{DNNL_ARG_SRC, made.a}, {DNNL_ARG_DST, made.out}, {DNNL_ARG_SCRATCHPAD, made.scratchpad}};
    return products.emplace(key, std::move(made)).first->second;
  }

  /// One object per address, since oneDNN writes the padding of the layout whenever a handle is set.
  const dnnl::memory& weights_at(const std::byte* packed) {
    const auto found = packed_weights.find(packed);
    if (found != packed_weights.end()) return found->second;
    return packed_weights.emplace(packed, dnnl::memory(weights, engine, const_cast<std::byte*>(packed))).first->second;
  }
};

OnednnMatmul::OnednnMatmul(DType dtype, int64_t columns, int64_t k_count, std::string required_impl)
    : required_impl_(std::move(required_impl)) {
  pin_isa();
  compute_alone();
  try {
    impl_data_ = std::make_unique<Impl>();
    impl_data_->type = data_type(dtype);
    impl_data_->columns = columns;
    impl_data_->k_count = k_count;
    // The layout depends on the columns and the type, not on the rows, which must be a number all the same.
    const dnnl::memory::desc any({k_count, columns}, impl_data_->type, dnnl::memory::format_tag::any);
    impl_data_->weights = impl_data_->describe(32, k_count, columns, any).weights_desc();
  } catch (const dnnl::error& error) {
    throw Error(ErrorKind::kDevice,
                "oneDNN has no matrix product for weights {} [{}, {}] on this CPU ({}); choose --cpu-isa avx2",
                to_string(dtype), columns, k_count, error.what());
  }
  packed_bytes_ = static_cast<int64_t>(impl_data_->weights.get_size());
  k_offsets_ = dimension_offsets(impl_data_->weights, 0);
  column_offsets_ = dimension_offsets(impl_data_->weights, 1);
}

OnednnMatmul::~OnednnMatmul() = default;

void OnednnMatmul::run(int64_t rows, const void* a, int64_t lda, const std::byte* packed, float* out, int64_t ldo,
                       Scratch& scratch) {
  compute_alone();
  try {
    Impl::Product& product = impl_data_->product(rows, lda, ldo);
    impl_ = product.name;
    if (product.name.find(required_impl_) == std::string::npos) {
      throw Error(
          ErrorKind::kDevice,
          "oneDNN would use {} for {} rows of [{}, {}], whose bits may depend on the batch; choose --cpu-isa avx2",
          product.name, rows, impl_data_->columns, impl_data_->k_count);
    }
    product.a.set_data_handle(const_cast<void*>(a));
    product.arguments[DNNL_ARG_WEIGHTS] = impl_data_->weights_at(packed);
    product.out.set_data_handle(out);
    product.scratchpad.set_data_handle(product.scratchpad_bytes > 0 ? scratch.get<std::byte>(product.scratchpad_bytes)
                                                                    : nullptr);
    product.primitive.execute(impl_data_->stream, product.arguments);
    impl_data_->stream.wait();
  } catch (const dnnl::error& error) {
    throw Error(ErrorKind::kDevice, "oneDNN matrix product of {} rows with [{}, {}] failed: {}", rows,
                impl_data_->columns, impl_data_->k_count, error.what());
  }
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace tokenmill::cpu
