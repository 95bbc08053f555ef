#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "io/gguf.h"

namespace tokenmill::test {

/// Writes GGUF bytes by hand, correct or damaged: every number can be chosen.
class GgufBuilder {
 public:
  template <typename T>
  GgufBuilder& raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBuilder& text(std::string_view value) {
    raw(static_cast<uint64_t>(value.size()));
    bytes_ += value;
    return *this;
  }
  GgufBuilder& header(uint64_t tensors, uint64_t keys, uint32_t version = 3, std::string_view magic = "GGUF") {
    bytes_ += magic;
    return raw(version).raw(tensors).raw(keys);
  }
  GgufBuilder& key(std::string_view name, io::GgufType type) { return text(name).raw(static_cast<uint32_t>(type)); }
  template <typename T>
  GgufBuilder& key(std::string_view name, io::GgufType type, T value) {
    return key(name, type).raw(value);
  }
  GgufBuilder& array(std::string_view name, io::GgufType element, uint64_t count) {
    return key(name, io::GgufType::kArray).raw(static_cast<uint32_t>(element)).raw(count);
  }
  GgufBuilder& tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset) {
    text(name).raw(static_cast<uint32_t>(dims.size()));
    for (const uint64_t extent : dims) raw(extent);
    return raw(type).raw(offset);
  }
  /// Pads to the alignment and appends `count` bytes of data.
  GgufBuilder& data(size_t count, size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment, '\0');
    bytes_.append(count, 'd');
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace tokenmill::test
