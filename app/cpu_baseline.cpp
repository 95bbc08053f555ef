// Everything else is compiled for x86-64-v3 and would die by SIGILL on an older CPU, as early as in a constructor of a
// global. This file alone is compiled for any x86-64, and its constructor runs before those. It includes none of our
// headers: the linker could take its copy of their inline functions for the whole program.
#include <unistd.h>

namespace {

__attribute__((constructor(101))) void refuse_old_cpu() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return;
  const char message[] =
      "error[device] this CPU lacks AVX2, FMA or BMI2; tokenmill needs x86-64-v3 (Intel Haswell, AMD Zen or "
      "later). Run the job on newer nodes.\n";
  static_cast<void>(!write(STDERR_FILENO, message, sizeof message - 1));
  _exit(4);  // kExitEnvironment
}

}  // namespace
