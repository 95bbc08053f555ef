#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "io/tensor_index.h"

/// GGUF files, versions 2 and 3, little-endian. As with safetensors nothing is believed before it is checked, and
/// nothing is allocated for a count that the rest of the file could not hold. Errors are Error(kIo) naming the file and
/// the key or tensor at fault. Only the metadata and the tensor table are read here.
namespace tokenmill::io {

/// The numbers are the format's.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12
};

/// "uint8", ..., "string", "array".
const char* to_string(GgufType type);

/// One metadata value as it lies in the file.
struct GgufValue {
  GgufType type = GgufType::kUint8;
  GgufType element_type = GgufType::kUint8;  ///< arrays only
  int64_t count = 1;                         ///< elements; 1 for what is no array
  std::string bytes;                         ///< a string's text; else the number or numbers, little-endian
  std::vector<std::string> strings;          ///< arrays of strings only

  /// "uint32 30", "string llama", "array of 49152 strings": for inspect.
  std::string describe() const;
};

/// Key-value pairs in file order, with accessors that check the type. They throw Error(kIo) such as "m.gguf: key
/// llama.block_count is string, must be an unsigned integer", or "... is missing".
class GgufMetadata {
 public:
  using Entry = std::pair<std::string, GgufValue>;
  GgufMetadata() = default;
  GgufMetadata(std::string path, std::vector<Entry> entries);

  const std::vector<Entry>& entries() const { return entries_; }
  const GgufValue* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }

  /// Any integer type, negative values refused.
  uint64_t unsigned_integer(const std::string& key) const;
  /// Any integer type that fits.
  int64_t integer(const std::string& key) const;
  /// A float or an integer.
  double number(const std::string& key) const;
  bool boolean(const std::string& key) const;
  const std::string& string(const std::string& key) const;
  const std::vector<std::string>& strings(const std::string& key) const;
  /// An array of any integer type.
  std::vector<int64_t> integers(const std::string& key) const;
  /// An array of floats or integers.
  std::vector<double> numbers(const std::string& key) const;
  std::vector<bool> booleans(const std::string& key) const;

 private:
  const GgufValue& at(const std::string& key) const;
  const GgufValue& array_at(const std::string& key, const char* wanted) const;
  [[noreturn]] void fail(const std::string& key, const GgufValue& value, const char* wanted) const;
  std::string path_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, size_t> by_key_;
};

struct GgufFile {
  uint32_t version = 0;
  int64_t alignment = 32;
  GgufMetadata metadata;
  /// Shapes are row-major: the file's [cols, rows] is [rows, cols] here. Types that this version cannot load (IQ2_XS,
  /// I32,
  /// ...) are listed without a format.
  TensorIndex tensors;
};

/// Throws Error(kConfig) for a part of a split model (merge the parts first), Error(kIo) for everything that is
/// damaged.
GgufFile read_gguf(const std::string& path);

/// True when the file starts with GGUF's magic number. False for what cannot be read.
bool is_gguf(const std::string& path);

}  // namespace tokenmill::io
