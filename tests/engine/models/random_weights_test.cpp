#include "engine/models/random_weights.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tokenmill {
namespace {

constexpr int64_t kRows = 96, kCols = 64;

WeightCatalog random_catalog() {
  WeightCatalog catalog;
  catalog.set_random();
  return catalog;
}

/// The columns of a random matrix, as a product with unit vectors shows them, for the slice of it that is asked for.
std::vector<float> matrix(const RowSlice& slice, Range cols) {
  const auto ops = make_ops({}, {.num_threads = 1});
  const WeightCatalog catalog = random_catalog();
  WeightBuilder builder(*ops, catalog, DType::kF32);
  std::unique_ptr<Linear> linear;
  builder.linear(linear, {slice}, kCols, cols);
  Buffer storage = ops->memory().allocate(builder.num_bytes());
  make_random_weights(builder.place(storage.bytes()));
  std::vector<float> x(static_cast<size_t>(cols.size() * cols.size()));
  for (int64_t i = 0; i < cols.size(); ++i) x[static_cast<size_t>(i * cols.size() + i)] = 1;
  std::vector<float> out(static_cast<size_t>(cols.size() * slice.rows.size()));
  ops->linear(TensorView(out.data(), DType::kF32, {cols.size(), slice.rows.size()}),
              TensorView(x.data(), DType::kF32, {cols.size(), cols.size()}), *linear);
  return out;
}

TEST_CASE("random matrices have a mean of 0 and a standard deviation of 0.02, each its own, every time the same") {
  const std::vector<float> one = matrix(whole_tensor("model.layers.0.mlp.up_proj.weight", kRows), {0, kCols});
  double sum = 0, squares = 0;
  for (const float value : one) sum += value, squares += static_cast<double>(value) * value;
  const auto n = static_cast<double>(one.size());
  // 6,144 numbers: the mean is within 4 of its standard deviations of 0.02 / sqrt(n).
  CHECK(std::abs(sum / n) < 4 * 0.02 / std::sqrt(n));
  CHECK(std::sqrt(squares / n) == doctest::Approx(0.02).epsilon(0.03));
  CHECK(one == matrix(whole_tensor("model.layers.0.mlp.up_proj.weight", kRows), {0, kCols}));
  CHECK(one != matrix(whole_tensor("model.layers.1.mlp.up_proj.weight", kRows), {0, kCols}));
}

TEST_CASE("a rank's slice of a random matrix is that of the whole") {
  const std::string name = "model.layers.0.self_attn.o_proj.weight";
  const std::vector<float> whole = matrix(whole_tensor(name, kRows), {0, kCols});
  const Range rows{40, 96}, cols{16, 48};
  const std::vector<float> part = matrix({name, kRows, rows}, cols);
  size_t next = 0;
  for (int64_t col = cols.begin; col < cols.end; ++col)
    for (int64_t row = rows.begin; row < rows.end; ++row)
      REQUIRE(part[next++] == whole[static_cast<size_t>(col * kRows + row)]);
}

TEST_CASE("norms of a random model are 1, its biases are not, and a name is one tensor") {
  const auto ops = make_ops({}, {.num_threads = 1});
  const WeightCatalog catalog = random_catalog();
  WeightBuilder builder(*ops, catalog, DType::kF32);
  TensorView norm, bias, again;
  builder.vector(norm, {whole_tensor("model.norm.weight", kCols)});
  builder.vector(bias, {whole_tensor("model.layers.0.self_attn.q_proj.bias", kCols)});
  builder.vector(again, {whole_tensor("model.layers.0.self_attn.q_proj.bias", kCols)});
  CHECK(builder.num_parameters() == 2 * kCols);
  Buffer storage = ops->memory().allocate(builder.num_bytes());
  make_random_weights(builder.place(storage.bytes()));
  float largest = 0;
  for (int64_t i = 0; i < kCols; ++i) {
    REQUIRE(norm.as<float>()[i] == 1);
    REQUIRE(bias.as<float>()[i] == again.as<float>()[i]);
    largest = std::max(largest, std::abs(bias.as<float>()[i]));
  }
  CHECK(largest > 0.02F);
  CHECK(largest < 0.035F);
}

}  // namespace
}  // namespace tokenmill
