#pragma once
#include "kernels/cpu/isa.h"

/// In a kernel file, below HWY_ONCE: the table `name` of the target that serves isa. Both are defined as
/// `extern const Table name; const Table name = {...};` inside namespace HWY_NAMESPACE.
#define TM_CPU_TABLE(name, isa) ((isa) == ::tokenmill::cpu::Isa::kAvx2 ? N_AVX2::name : N_AVX3::name)
