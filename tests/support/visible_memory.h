#pragma once
#include <cstddef>
#include <vector>

namespace tokenmill::test {

/// Host memory that the kernels of every backend reach: pinned where there is a CUDA device.
void* allocate_visible(size_t num_bytes);
void free_visible(void* memory);

template <typename T>
struct VisibleAllocator {
  using value_type = T;
  VisibleAllocator() = default;
  template <typename U>
  VisibleAllocator(const VisibleAllocator<U>&) {}
  T* allocate(size_t count) { return static_cast<T*>(allocate_visible(count * sizeof(T))); }
  void deallocate(T* memory, size_t) { free_visible(memory); }
  bool operator==(const VisibleAllocator&) const { return true; }
};

/// What tests hand to an operation as it is.
template <typename T>
using VisibleVector = std::vector<T, VisibleAllocator<T>>;

}  // namespace tokenmill::test
