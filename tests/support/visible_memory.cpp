#include "tests/support/visible_memory.h"

#include <new>

#ifdef TOKENMILL_CUDA
#include "kernels/cuda/cuda_device.h"
#include "kernels/device/cuda_check.h"
#endif

namespace tokenmill::test {

#ifdef TOKENMILL_CUDA
namespace {

bool has_device() {
  static const bool found = cuda::num_visible_devices() > 0;
  return found;
}

}  // namespace

void* allocate_visible(size_t num_bytes) {
  if (!has_device()) return ::operator new(num_bytes);
  void* memory = nullptr;
  TM_CUDA(cudaHostAlloc(&memory, num_bytes, cudaHostAllocPortable));
  return memory;
}

void free_visible(void* memory) {
  if (!has_device()) return ::operator delete(memory);
  static_cast<void>(cudaFreeHost(memory));  // after a failed kernel nothing can be freed, and nothing needs to be
}
#else
void* allocate_visible(size_t num_bytes) { return ::operator new(num_bytes); }

void free_visible(void* memory) { ::operator delete(memory); }
#endif

}  // namespace tokenmill::test
