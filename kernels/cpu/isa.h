#pragma once
#include <string>
#include <vector>

namespace tokenmill::cpu {

/// The kernel families of the CPU device. Results are equal bit for bit within one, whatever the batch, the chunks or
/// the threads; they differ by rounding between two. Chosen by a fixed table of CPU features, never by a stopwatch.
enum class Isa {
  kAvx2,        ///< own FMA GEMM for f32 and bf16
  kAvx512,      ///< oneDNN for f32, own FMA GEMM for bf16 and for small or odd matrices
  kAvx512Bf16,  ///< oneDNN for f32 and bf16, own FMA GEMM for small or odd matrices
};

/// "avx2", "avx512", "avx512_bf16".
std::string to_string(Isa isa);

/// What this CPU and operating system can run, best last; never empty (the program needs x86-64-v3).
std::vector<Isa> available_isas();

/// name: auto (the best of available), avx2, avx512 or avx512_bf16.
/// Throws Error(kConfig) naming the choices for an unknown name or an ISA that is not available.
Isa choose_isa(const std::string& name, const std::vector<Isa>& available);

}  // namespace tokenmill::cpu
