#pragma once
// Runs a kernel on the emulator's core, without streams: test::run_kernel(kernel, {.grid = 2, .block = 64}, seed, out,
// n).
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels/device/cuda.h"
#include "kernels/emulation/grid.h"

namespace tokenmill::test {

/// Forward, reverse and random orders.
constexpr uint64_t kSeeds[] = {0, 1, 2, 3, 4, 5};

struct Shape {
  dim3 grid = 1;
  dim3 block = 32;
  size_t smem = 0;
  const char* name = "test_kernel";
};

/// "" or the error text.
template <typename... Parameters, typename... Arguments>
std::string run_kernel(void (*kernel)(Parameters...), const Shape& shape, uint64_t seed, Arguments... arguments) {
  const std::tuple<std::remove_cv_t<Parameters>...> values(static_cast<Parameters>(arguments)...);
  const auto error = emulation::run_grid(
      {.grid = shape.grid, .block = shape.block, .dynamic_smem = shape.smem, .name = shape.name},
      [kernel, values] { std::apply(kernel, values); }, seed);
  return error.value_or("");
}

/// "" when the error text contains `part`, else the error text, so that a failing check prints it.
inline std::string unless_found(const std::string& part, const std::string& error) {
  return error.find(part) != std::string::npos ? "" : "not found in: " + error;
}

}  // namespace tokenmill::test
