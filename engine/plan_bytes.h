#pragma once
#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/core/error.h"

namespace tokenmill {

static_assert(std::endian::native == std::endian::little, "plans are copied as they lie in memory");

/// Where a plan is written first: its size is counted, then it is copied into bytes of exactly that size.
class PlanByteCount {
 public:
  template <typename T>
  void value(T) {
    size_ += sizeof(T);
  }
  void ids(const std::vector<int32_t>& list) { size_ += sizeof(uint32_t) + list.size() * sizeof(int32_t); }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

class PlanWriter {
 public:
  explicit PlanWriter(std::byte* at) : at_(at) {}
  template <typename T>
  void value(T x) {
    std::memcpy(at_, &x, sizeof(T));
    at_ += sizeof(T);
  }
  void ids(const std::vector<int32_t>& list) {
    value(static_cast<uint32_t>(list.size()));
    if (list.empty()) return;
    std::memcpy(at_, list.data(), list.size() * sizeof(int32_t));
    at_ += list.size() * sizeof(int32_t);
  }

 private:
  std::byte* at_;
};

template <typename Out, typename T>
void write_count(Out& out, const std::vector<T>& list) {
  out.value(static_cast<uint32_t>(list.size()));
}

/// Reads what PlanWriter wrote; every count is compared with the bytes that are left before memory is taken for it.
/// Throws Error(kInternal) naming the field and the byte.
class PlanReader {
 public:
  /// name: of the message, for errors.
  explicit PlanReader(std::span<const std::byte> bytes, const char* name = "step plan") : bytes_(bytes), name_(name) {}

  template <typename T>
  T value(const char* what) {
    if (left() < sizeof(T)) fail(what, "needs {} bytes, {} are left", sizeof(T), left());
    T x;
    std::memcpy(&x, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return x;
  }
  /// 0 or 1.
  bool flag(const char* what) {
    const auto x = value<uint8_t>(what);
    if (x > 1) fail(what, "is {}; 0 and 1 are known", x);
    return x == 1;
  }
  /// A count of items of at least min_bytes each.
  size_t count(const char* what, size_t min_bytes) {
    const size_t n = value<uint32_t>(what);
    if (n > left() / min_bytes)
      fail(what, "counts {} items of at least {} bytes, {} bytes are left", n, min_bytes, left());
    return n;
  }
  void ids(const char* what, std::vector<int32_t>& out) {
    out.resize(count(what, sizeof(int32_t)));
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + at_, out.size() * sizeof(int32_t));
    at_ += out.size() * sizeof(int32_t);
  }
  void id_lists(const char* what, std::vector<std::vector<int32_t>>& out) {
    out.resize(count(what, sizeof(uint32_t)));
    for (std::vector<int32_t>& list : out) ids(what, list);
  }
  size_t left() const { return bytes_.size() - at_; }

  template <typename... Args>
  [[noreturn]] void fail(const char* what, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::kInternal,
                "{} of {} bytes is damaged: {} at byte {} {}; do all ranks run the same tokenmill?", name_,
                bytes_.size(), what, at_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::span<const std::byte> bytes_;
  const char* name_;
  size_t at_ = 0;
};

}  // namespace tokenmill
