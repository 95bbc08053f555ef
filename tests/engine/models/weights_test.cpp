#include "engine/models/weights.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "engine/models/loader.h"
#include "io/file.h"
#include "kernels/core/error.h"
#include "tests/support/temp_dir.h"

namespace tokenmill {
namespace {

WeightSource source(const std::string& name, const std::string& file, std::vector<int64_t> shape, int64_t offset) {
  WeightSource s;
  s.name = s.stored_name = name;
  s.file = file;
  s.shape = std::move(shape);
  s.offset = offset;
  s.num_bytes = 4;
  for (const int64_t n : s.shape) s.num_bytes *= n;
  return s;
}

TEST_CASE("the builder refuses tensors that are missing, misshapen or of a type it cannot hold") {
  const auto ops = make_ops({}, {.num_threads = 1});
  WeightCatalog catalog;
  catalog.set_where("model-dir");
  catalog.add(source("w", "m.safetensors", {8, 4}, 0));
  WeightSource strange = source("strange", "m.safetensors", {4}, 128);
  strange.unsupported_type = "F8_E4M3";
  catalog.add(strange);
  WeightSource blocks = source("blocks", "m.gguf", {32}, 144);
  blocks.format = WeightFormat::kQ8_0;
  catalog.add(blocks);
  WeightBuilder builder(*ops, catalog, DType::kF32);
  std::unique_ptr<Linear> linear;
  TensorView vector;
  CHECK_THROWS_WITH_AS(builder.linear(linear, {whole_tensor("missing", 8)}, 4),
                       doctest::Contains("model-dir: tensor missing is missing, the model's configuration"), Error);
  CHECK_THROWS_WITH_AS(
      builder.linear(linear, {whole_tensor("w", 8)}, 8),
      doctest::Contains("m.safetensors: tensor w is [8, 4], the model's configuration asks for [8, 8]"), Error);
  CHECK_THROWS_WITH_AS(builder.vector(vector, {whole_tensor("strange", 4)}),
                       doctest::Contains("tensor strange has type F8_E4M3"), Error);
  CHECK_THROWS_WITH_AS(builder.vector(vector, {whole_tensor("blocks", 32)}),
                       doctest::Contains("tensor blocks has type Q8_0; norms and biases"), Error);
  CHECK_THROWS_WITH_AS(catalog.add(source("w", "n.safetensors", {1}, 0)), doctest::Contains("tensor w appears twice"),
                       Error);
}

TEST_CASE("a rank takes rows and columns of tensors, and counts what others hold without taking it") {
  const auto ops = make_ops({}, {.num_threads = 1});
  const test::TempDir dir;
  const std::string file = dir.path() + "/w.bin";
  std::vector<float> values(8 * 4 + 4);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  io::write_file_atomically(file, {reinterpret_cast<const char*>(values.data()), values.size() * 4});
  WeightCatalog catalog;
  catalog.add(source("w", file, {8, 4}, 0));
  catalog.add(source("b", file, {4}, 128));
  WeightBuilder builder(*ops, catalog, DType::kF32);
  std::unique_ptr<Linear> mine, others;
  TensorView bias;
  builder.linear(mine, {{"w", 8, {2, 4}}, {"w", 8, {7, 8}}}, 4, {1, 3});
  const int64_t mine_bytes = builder.num_bytes();
  builder.vector(bias, {{"b", 4, {2, 4}}});
  const std::string description = builder.describe();
  CHECK_EQ(description,
           "linear [3, 2] float32 in " + std::to_string(mine_bytes) +
               " bytes: w F32 [8, 4], rows 2 to 4, columns 1 to 3, order 0 of 0; "
               "w F32 [8, 4], rows 7 to 8, columns 1 to 3, order 0 of 0;\n"
               "vector [1, 2] float32 in 8 bytes: b F32 [4, 1], rows 2 to 4, columns 0 to 1, order 0 of 0;\n");
  const int64_t held_bytes = builder.num_bytes();
  builder.set_held(false);
  builder.linear(others, {whole_tensor("w", 8)}, 4);
  CHECK(builder.num_bytes() == held_bytes);
  CHECK_EQ(builder.describe(), description);
  CHECK(builder.num_parameters() == 8 * 4 + 4);
  CHECK(builder.unused().empty());
  Buffer storage = ops->memory().allocate(held_bytes);
  load_weights(builder.place(storage.bytes()));
  CHECK(others == nullptr);
  CHECK(bias.as<float>()[0] == 34);
  CHECK(bias.as<float>()[1] == 35);
  std::vector<float> x{1, 100}, out(3);
  ops->linear(TensorView(out.data(), DType::kF32, {1, 3}), TensorView(x.data(), DType::kF32, {1, 2}), *mine);
  CHECK(out == std::vector<float>{9 + 1000, 13 + 1400, 29 + 3000});
}

}  // namespace
}  // namespace tokenmill
