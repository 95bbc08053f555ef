#include "engine/models/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {
constexpr int64_t kAlignment = 64;
int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
}  // namespace

RowSlice whole_tensor(std::string name, int64_t num_rows) { return {std::move(name), num_rows, {0, num_rows}}; }

struct WeightBuilder::Item {
  enum class Kind { kLinear, kEmbedding, kVector } kind;
  LinearSpec spec;
  std::vector<const WeightSource*> sources;
  int64_t num_bytes = 0;
  std::unique_ptr<Linear>* linear = nullptr;
  std::unique_ptr<Embedding>* embedding = nullptr;
  TensorView* vector = nullptr;
};

WeightBuilder::WeightBuilder(Ops& ops, const WeightCatalog& catalog, DType compute_dtype)
    : ops_(ops), catalog_(catalog), compute_dtype_(compute_dtype) {}
WeightBuilder::~WeightBuilder() = default;

/// cols: of a vector 1.
const WeightSource& WeightBuilder::source_of(const RowSlice& slice, int64_t cols) {
  if (!catalog_.is_random()) return catalog_.at(slice.name);
  const auto [found, is_new] = random_sources_.try_emplace(slice.name);
  if (is_new) {
    const int64_t num_bytes = slice.num_rows * weight_row_bytes(WeightFormat::kBF16, cols);
    found->second = {.name = slice.name, .stored_name = slice.name, .format = WeightFormat::kBF16, .num_bytes = num_bytes};
    found->second.shape = {slice.num_rows};
    if (cols > 1) found->second.shape.push_back(cols);
  }
  return found->second;
}

LinearPart WeightBuilder::part(const WeightSource& source, int64_t rows, int64_t cols) const {
  if (!source.unsupported_type.empty()) {
    throw Error(ErrorKind::kConfig, "{}: tensor {} has type {}; supported are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K",
                source.file, source.stored_name, source.unsupported_type);
  }
  const bool matches = source.shape.size() == 2 ? source.shape[0] == rows && source.shape[1] == cols
                                                : source.shape.size() == 1 && rows == 1 && source.shape[0] == cols;
  if (!matches) {
    const std::string wanted = rows == 1 ? fmt::format("[{}]", cols) : fmt::format("[{}, {}]", rows, cols);
    throw Error(ErrorKind::kIo, "{}: tensor {} is [{}], the model's configuration asks for {}; do they belong together?", source.file, source.stored_name,
                fmt::join(source.shape, ", "), wanted);
  }
  const WeightFormatInfo info = weight_format_info(source.format);
  if (cols % info.block_elements != 0) {
    throw Error(ErrorKind::kIo, "{}: tensor {} is {} with rows of {}; rows must be a multiple of {}", source.file,
                source.stored_name, info.name, cols, info.block_elements);
  }
  return {source.format, rows, cols, 0, rows, 0, cols, source.row_order, source.head_dim};
}

void WeightBuilder::count(const WeightSource& source, const LinearPart& part) {
  // A tied head is the embedding once more, not more parameters.
  if (counted_.insert(&source).second) num_parameters_ += part.source_rows * part.source_cols;
}

void WeightBuilder::reserve(Item item) {
  num_bytes_ += aligned(item.num_bytes);
  items_.push_back(std::move(item));
}

void WeightBuilder::linear(std::unique_ptr<Linear>& target, const std::vector<RowSlice>& slices, int64_t in_features,
                           Range cols) {
  Item item{Item::Kind::kLinear, {cols.size(), 0, compute_dtype_, {}}, {}};
  item.linear = &target;
  for (const RowSlice& slice : slices) {
    const WeightSource& source = source_of(slice, in_features);
    LinearPart p = part(source, slice.num_rows, in_features);
    count(source, p);
    p.row_begin = slice.rows.begin, p.row_end = slice.rows.end;
    p.col_begin = cols.begin, p.col_end = cols.end;
    item.spec.parts.push_back(p);
    item.spec.out_features += slice.rows.size();
    item.sources.push_back(&source);
  }
  if (!held_) return;
  item.num_bytes = ops_.linear_bytes(item.spec);
  reserve(std::move(item));
}

void WeightBuilder::embedding(std::unique_ptr<Embedding>& target, const RowSlice& slice, int64_t cols) {
  const WeightSource& source = source_of(slice, cols);
  LinearPart p = part(source, slice.num_rows, cols);
  count(source, p);
  p.row_begin = slice.rows.begin, p.row_end = slice.rows.end;
  Item item{Item::Kind::kEmbedding, {cols, slice.rows.size(), compute_dtype_, {p}}, {&source}};
  item.embedding = &target;
  if (!held_) return;
  item.num_bytes = ops_.embedding_bytes(item.spec);
  reserve(std::move(item));
}

void WeightBuilder::vector(TensorView& target, const std::vector<RowSlice>& slices) {
  Item item{Item::Kind::kVector, {0, 1, compute_dtype_, {}}, {}};
  item.vector = &target;
  for (const RowSlice& slice : slices) {
    const WeightSource& source = source_of(slice, 1);
    LinearPart p = part(source, 1, slice.num_rows);
    if (weight_format_info(source.format).block_elements != 1) {
      throw Error(ErrorKind::kConfig, "{}: tensor {} has type {}; norms and biases must be F32, F16 or BF16", source.file,
                  source.stored_name, weight_format_info(source.format).name);
    }
    count(source, p);
    // As a column: parts of different sizes stack, and the elements of a q or k bias are its rows.
    p = {source.format,       slice.num_rows, 1, slice.rows.begin, slice.rows.end, 0, 1,
         source.row_order, source.head_dim};
    item.spec.parts.push_back(p);
    item.spec.in_features += slice.rows.size();
    item.sources.push_back(&source);
  }
  if (!held_) return;
  item.num_bytes = item.spec.in_features * dtype_size(compute_dtype_);
  reserve(std::move(item));
}

std::vector<std::string> WeightBuilder::unused() const {
  std::vector<std::string> names;
  if (catalog_.is_random()) return names;
  for (const auto& [name, source] : catalog_.all()) {
    if (!counted_.contains(&source)) names.push_back(name);
  }
  return names;
}

std::string WeightBuilder::describe() const {
  constexpr std::array kKinds = {"linear", "embedding", "vector"};
  std::string text;
  for (const Item& item : items_) {
    text += fmt::format("{} [{}, {}] {} in {} bytes:", kKinds.at(static_cast<size_t>(item.kind)), item.spec.out_features,
                        item.spec.in_features, to_string(item.spec.compute_dtype), item.num_bytes);
    for (size_t i = 0; i < item.sources.size(); ++i) {
      const LinearPart& p = item.spec.parts[i];
      text += fmt::format(" {} {} [{}, {}], rows {} to {}, columns {} to {}, order {} of {};", item.sources[i]->name,
                          weight_format_info(p.format).name, p.source_rows, p.source_cols, p.row_begin, p.row_end,
                          p.col_begin, p.col_end, static_cast<int>(p.row_order), p.head_dim);
    }
    text += '\n';
  }
  return text;
}

WeightPlan WeightBuilder::place(std::span<std::byte> storage) {
  TM_ASSERT(static_cast<int64_t>(storage.size()) >= num_bytes_);
  const bool is_host = ops_.device().kind == DeviceKind::kCpu;
  WeightPlan plan;
  int64_t offset = 0;
  for (Item& item : items_) {
    const std::span<std::byte> own = storage.subspan(offset, item.num_bytes);
    offset += aligned(item.num_bytes);
    WeightSink* sink = nullptr;
    switch (item.kind) {
      case Item::Kind::kLinear:
        *item.linear = ops_.make_linear(item.spec, own);
        sink = item.linear->get();
        break;
      case Item::Kind::kEmbedding:
        *item.embedding = ops_.make_embedding(item.spec, own);
        sink = item.embedding->get();
        break;
      case Item::Kind::kVector:
        *item.vector = TensorView(own.data(), compute_dtype_, {item.spec.in_features}, is_host);
        vector_sinks_.push_back(ops_.make_vector_sink(
            TensorView(own.data(), compute_dtype_, {item.spec.in_features, 1}, is_host), item.spec.parts));
        sink = vector_sinks_.back().get();
        break;
    }
    for (size_t i = 0; i < item.sources.size(); ++i) {
      const LinearPart& p = item.spec.parts[i];
      const int64_t row_bytes = weight_row_bytes(p.format, p.source_cols);
      plan.entries.push_back(
          {item.sources[i], sink, static_cast<int>(i), p.row_begin * row_bytes, p.row_end * row_bytes});
    }
  }
  return plan;
}

}  // namespace tokenmill
