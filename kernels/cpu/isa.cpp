#include "kernels/cpu/isa.h"

#include <fmt/format.h>

#include "kernels/core/error.h"

namespace tokenmill::cpu {

std::string to_string(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "unknown";
}

std::vector<Isa> available_isas() {
  __builtin_cpu_init();
  std::vector<Isa> isas = {Isa::kAvx2};  // part of x86-64-v3, which everything here is compiled for
  // The features Highway's AVX3 target is compiled for.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")) {
    isas.push_back(Isa::kAvx512);
    if (__builtin_cpu_supports("avx512bf16")) isas.push_back(Isa::kAvx512Bf16);
  }
  return isas;
}

Isa choose_isa(const std::string& name, const std::vector<Isa>& available) {
  if (name == "auto") return available.back();
  std::string choices = "auto";
  for (const Isa isa : available) {
    if (to_string(isa) == name) return isa;
    choices += ", " + to_string(isa);
  }
  const bool known = name == "avx2" || name == "avx512" || name == "avx512_bf16";
  throw Error(ErrorKind::kConfig, "--cpu-isa {} {}; choose {}", name,
              known ? "needs instructions this CPU does not have" : "is unknown", choices);
}

}  // namespace tokenmill::cpu
