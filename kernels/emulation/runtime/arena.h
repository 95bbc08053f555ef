#pragma once
#include <cstddef>
#include <cstdint>
#include <map>

/// The memory of one emulated device: one range of addresses, so that one call takes it away from the host.
namespace tokenmill::emulation {

/// Gives out aligned pieces of a reserved range, lowest address first, with a gap behind each that kernels must not
/// touch (AddressSanitizer is told). The caller counts what is used; the range is so much larger than a device's memory
/// that fragments do not matter.
class Arena {
 public:
  static constexpr size_t kAlignment = 256;
  explicit Arena(size_t num_bytes);
  /// nullptr when the range is used up.
  void* take(size_t num_bytes);
  void give_back(void* pointer);
  /// While closed, touching any of the memory is a segmentation fault.
  void open();
  void close();

 private:
  char* start_;
  size_t num_bytes_;
  size_t touched_ = 0;  // whole huge pages from the start that any piece has reached
  bool open_ = false;
  std::map<size_t, size_t> pieces_;  // offset, bytes
};

}  // namespace tokenmill::emulation
