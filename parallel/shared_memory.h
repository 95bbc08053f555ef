#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "parallel/mpi.h"

namespace tokenmill::parallel {

/// Memory that the ranks of one node have in common. It lives until the last of them lets go of it or ends, however it
/// ends: nothing is left behind in a file system, and letting go is no collective call. Movable; lets go when
/// destroyed.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Collective over comm, whose ranks can share memory (Comm::split_shared or a part of it). The same num_bytes on
  /// every rank. Zeroed; starts on a page of 2 MiB for sizes from there on, and asks for such pages. Pages are taken
  /// when they are first written. Throws the same Error(kDevice) on every rank, with the system's reason, where it
  /// cannot be had.
  SharedMemory(const Comm& comm, int64_t num_bytes);
  ~SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    SharedMemory moved(std::move(other));
    swap(moved);
    return *this;
  }

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  void swap(SharedMemory& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
  }
  std::span<std::byte> bytes_;
  void* mapping_ = nullptr;  // address space of mapped_bytes_, in which bytes_ lie
  size_t mapped_bytes_ = 0;
};

}  // namespace tokenmill::parallel
