#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "io/file.h"
#include "io/utf8.h"
#include "kernels/core/check.h"
#include "kernels/core/error.h"

namespace tokenmill::io {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in the file");

constexpr int64_t kMaxHeaderBytes = int64_t{128} << 20;  // metadata and tensor table; real ones are below 20 MB
constexpr uint64_t kMaxKeys = 65536;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxArrayElements = 1 << 24;  // vocabularies and merges are below 1 << 20
constexpr uint64_t kMaxStringBytes = 16 << 20;   // chat templates
constexpr uint64_t kMaxNameBytes = 65535;        // keys by the format; tensor names too
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;

struct GgmlType {
  uint32_t id;
  std::string_view name;
  int64_t block_elements;
  int64_t block_bytes;
  std::optional<WeightFormat> format;
};

constexpr GgmlType loadable(uint32_t id, WeightFormat format) {
  const WeightFormatInfo info = weight_format_info(format);
  return {id, info.name, info.block_elements, info.block_bytes, format};
}

/// Block sizes of the formats that are only listed: ggml's documentation of GGUF quantization types.
constexpr GgmlType kGgmlTypes[] = {
    loadable(0, WeightFormat::kF32),
    loadable(1, WeightFormat::kF16),
    loadable(2, WeightFormat::kQ4_0),
    loadable(3, WeightFormat::kQ4_1),
    loadable(6, WeightFormat::kQ5_0),
    loadable(7, WeightFormat::kQ5_1),
    loadable(8, WeightFormat::kQ8_0),
    {9, "Q8_1", 32, 36, {}},
    {10, "Q2_K", 256, 84, {}},
    {11, "Q3_K", 256, 110, {}},
    loadable(12, WeightFormat::kQ4_K),
    loadable(13, WeightFormat::kQ5_K),
    loadable(14, WeightFormat::kQ6_K),
    {15, "Q8_K", 256, 292, {}},
    {16, "IQ2_XXS", 256, 66, {}},
    {17, "IQ2_XS", 256, 74, {}},
    {18, "IQ3_XXS", 256, 98, {}},
    {19, "IQ1_S", 256, 50, {}},
    {20, "IQ4_NL", 32, 18, {}},
    {21, "IQ3_S", 256, 110, {}},
    {22, "IQ2_S", 256, 82, {}},
    {23, "IQ4_XS", 256, 136, {}},
    {24, "I8", 1, 1, {}},
    {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, {}},
    {27, "I64", 1, 8, {}},
    {28, "F64", 1, 8, {}},
    {29, "IQ1_M", 256, 56, {}},
    loadable(30, WeightFormat::kBF16),
    {34, "TQ1_0", 256, 54, {}},
    {35, "TQ2_0", 256, 66, {}},
    {39, "MXFP4", 32, 17, {}},
    {40, "NVFP4", 64, 36, {}},
};

/// Bytes of one value; 0 for strings, arrays and what is no type.
int64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

/// The header, read front to back through a buffer; every read is checked against the end of the file first.
class GgufReader {
 public:
  explicit GgufReader(const std::string& path)
      : path_(path),
        file_(File::open_read(path)),
        file_bytes_(file_.size()),
        buffer_(static_cast<size_t>(std::clamp<int64_t>(file_bytes_, 1, 1 << 20))) {}

  GgufFile read() {
    GgufFile result;
    result.version = read_version();
    const uint64_t num_tensors = read_count("tensor count", kMaxTensors, kMinTensorBytes);
    const uint64_t num_keys = read_count("key count", kMaxKeys, kMinKeyBytes);
    std::vector<GgufMetadata::Entry> entries;
    for (uint64_t i = 0; i < num_keys; ++i) entries.push_back(read_entry(i));
    result.metadata = GgufMetadata(path_, std::move(entries));
    result.alignment = alignment(result.metadata);
    refuse_split(result.metadata);
    std::vector<TensorInfo> tensors;
    for (uint64_t i = 0; i < num_tensors; ++i) tensors.push_back(read_tensor(i, result.alignment));
    place_tensors(tensors, result.alignment);
    result.tensors = TensorIndex({path_}, std::move(tensors));
    return result;
  }

 private:
  static constexpr int64_t kMinKeyBytes = 8 + 4 + 1;             // length, type, the smallest value
  static constexpr int64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;  // length, dims, one extent, type, offset

  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::kIo, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }

  /// What the header can still hold: the bound of every count and length before memory is taken for it.
  int64_t remaining() const { return std::min(file_bytes_, kMaxHeaderBytes) - position_; }

  void read_bytes(void* target, int64_t bytes, const std::string& what) {
    if (bytes > file_bytes_ - position_)
      fail("{} takes {} bytes at offset {}, the file has {} left: it is cut off or damaged", what, bytes, position_,
           file_bytes_ - position_);
    if (bytes > remaining()) fail("{}: metadata and tensor table exceed {} bytes", what, kMaxHeaderBytes);
    auto* out = static_cast<std::byte*>(target);
    while (bytes > 0) {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = file_.read_at(position_, buffer_);
        if (end_ == 0) fail("{}: the file became shorter while it was read", what);
      }
      const int64_t n = std::min(bytes, end_ - begin_);
      std::memcpy(out, buffer_.data() + begin_, static_cast<size_t>(n));
      out += n;
      begin_ += n;
      position_ += n;
      bytes -= n;
    }
  }

  template <typename T>
  T read_value(const std::string& what) {
    T value;
    read_bytes(&value, sizeof(T), what);
    return value;
  }

  uint32_t read_version() {
    char magic[4];
    if (file_bytes_ < 24) fail("is no GGUF file: it has {} bytes", file_bytes_);
    read_bytes(magic, 4, "the magic number");
    if (std::memcmp(magic, "GGUF", 4) != 0)
      fail("is no GGUF file: it starts with \"{}\", not with \"GGUF\"", excerpt(std::string_view(magic, 4)));
    const auto version = read_value<uint32_t>("the version");
    if (version == 1) fail("is GGUF version 1; versions 2 and 3 can be read: convert it again");
    if (version == 0x02000000 || version == 0x03000000)
      fail("is a big-endian GGUF file; only little-endian ones can be read");
    if (version != 2 && version != 3) fail("is GGUF version {}; versions 2 and 3 can be read", version);
    return version;
  }

  uint64_t read_count(const char* what, uint64_t limit, int64_t bytes_each) {
    const auto count = read_value<uint64_t>(what);
    const auto most = std::min(limit, static_cast<uint64_t>(remaining() / bytes_each));
    if (count > most) fail("{} is {}; at most {} are possible here: the file is damaged", what, count, most);
    return count;
  }

  std::string read_string(const std::string& what, uint64_t limit) {
    const auto length = read_value<uint64_t>(what);
    const auto most = std::min(limit, static_cast<uint64_t>(remaining()));
    if (length > most)
      fail("{}: a string is given as {} bytes; at most {} are possible here: the file is damaged", what, length, most);
    std::string text(length, '\0');
    read_bytes(text.data(), static_cast<int64_t>(length), what);
    if (const size_t bad = find_invalid_utf8(text); bad != text.npos)
      fail("{}: a string is not valid UTF-8 at its byte {}: \"{}\"", what, bad, excerpt(text));
    return text;
  }

  GgufType read_type(const std::string& what) {
    const auto type = read_value<uint32_t>(what);
    if (type > static_cast<uint32_t>(GgufType::kFloat64))
      fail("{} has type {}, which GGUF does not define", what, type);
    return static_cast<GgufType>(type);
  }

  GgufMetadata::Entry read_entry(uint64_t index) {
    GgufMetadata::Entry entry;
    entry.first = read_string(fmt::format("key {}", index), kMaxNameBytes);
    if (entry.first.empty()) fail("key {} has an empty name", index);
    const std::string what = "key " + excerpt(entry.first);
    GgufValue& value = entry.second;
    value.type = read_type(what);
    if (value.type == GgufType::kString) {
      value.bytes = read_string(what, kMaxStringBytes);
    } else if (value.type == GgufType::kArray) {
      read_array(value, what);
    } else {
      read_scalars(value, value.type, what);
    }
    return entry;
  }

  void read_array(GgufValue& value, const std::string& what) {
    value.element_type = read_type(what + " (array)");
    if (value.element_type == GgufType::kArray) fail("{} is an array of arrays, which is not supported", what);
    const bool strings = value.element_type == GgufType::kString;
    const auto count = read_value<uint64_t>(what);
    const int64_t bytes_each = strings ? 8 : scalar_bytes(value.element_type);
    const auto most = std::min(kMaxArrayElements, static_cast<uint64_t>(remaining() / bytes_each));
    if (count > most)
      fail("{}: the array is given as {} elements; at most {} are possible here: the file is damaged", what, count,
           most);
    value.count = static_cast<int64_t>(count);
    if (!strings) return read_scalars(value, value.element_type, what);
    value.strings.reserve(std::min(count, uint64_t{1} << 16));
    for (uint64_t i = 0; i < count; ++i) value.strings.push_back(read_string(what, kMaxStringBytes));
  }

  void read_scalars(GgufValue& value, GgufType type, const std::string& what) {
    value.bytes.resize(static_cast<size_t>(value.count * scalar_bytes(type)));
    read_bytes(value.bytes.data(), static_cast<int64_t>(value.bytes.size()), what);
    if (type == GgufType::kBool && value.bytes.find_first_not_of(std::string_view("\0\1", 2)) != std::string::npos)
      fail("{}: a bool is neither 0 nor 1: the file is damaged", what);
  }

  int64_t alignment(const GgufMetadata& metadata) const {
    if (!metadata.has("general.alignment")) return 32;
    const uint64_t value = metadata.unsigned_integer("general.alignment");
    if (!std::has_single_bit(value) || value > kMaxAlignment)
      fail("key general.alignment is {}, must be a power of two up to {}", value, kMaxAlignment);
    return static_cast<int64_t>(value);
  }

  void refuse_split(const GgufMetadata& metadata) const {
    if (!metadata.has("split.count")) return;
    const uint64_t parts = metadata.unsigned_integer("split.count");
    if (parts > 1)
      throw Error(
          ErrorKind::kConfig,
          "{}: is one of {} parts of a split model; join them first (llama-gguf-split --merge) and give that file",
          path_, parts);
  }

  /// One row of the tensor table; offset is relative to the data until place_tensors.
  TensorInfo read_tensor(uint64_t index, int64_t alignment) {
    TensorInfo tensor;
    tensor.name = read_string(fmt::format("tensor {}", index), kMaxNameBytes);
    if (tensor.name.empty()) fail("tensor {} has an empty name", index);
    const std::string what = "tensor " + excerpt(tensor.name);
    const auto num_dims = read_value<uint32_t>(what);
    if (num_dims < 1 || num_dims > kMaxDims)
      fail("{} has {} dimensions; 1 to {} are allowed", what, num_dims, kMaxDims);
    tensor.shape.resize(num_dims);
    for (uint32_t d = 0; d < num_dims; ++d) {  // the file begins with the row length
      const auto extent = read_value<uint64_t>(what);
      if (extent < 1 || extent > uint64_t{1} << 62)
        fail("{}: dimension {} is {}; it must be 1 to 2^62", what, d, extent);
      tensor.shape[num_dims - 1 - d] = static_cast<int64_t>(extent);
    }
    const auto type_id = read_value<uint32_t>(what);
    const GgmlType* const type =
        std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes), [&](const GgmlType& t) { return t.id == type_id; });
    if (type == std::end(kGgmlTypes))
      fail("{} has type number {}, which this version does not know: the file is damaged or too new", what, type_id);
    tensor.type_name = type->name;
    tensor.format = type->format;
    if (tensor.shape.back() % type->block_elements != 0)
      fail("{}: its rows of {} elements are no multiple of {}'s blocks of {}", what, tensor.shape.back(), type->name,
           type->block_elements);
    const std::optional<int64_t> bytes = tensor_bytes(tensor.shape, type->block_elements, type->block_bytes * 8);
    if (!bytes) fail("{}: shape {} of {} is too large", what, shape_text(tensor.shape), type->name);
    tensor.bytes = *bytes;
    const auto offset = read_value<uint64_t>(what);
    if (offset % static_cast<uint64_t>(alignment) != 0)
      fail("{}: offset {} is no multiple of the alignment {}", what, offset, alignment);
    if (offset > static_cast<uint64_t>(file_bytes_))
      fail("{}: offset {} lies behind the end of the file of {} bytes", what, offset, file_bytes_);
    tensor.offset = static_cast<int64_t>(offset);
    return tensor;
  }

  /// Makes offsets absolute. The tensors must follow each other, padded to the alignment, inside the file.
  void place_tensors(std::vector<TensorInfo>& tensors, int64_t alignment) const {
    const auto padded = [&](int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
    const int64_t data_start = padded(position_);
    std::sort(tensors.begin(), tensors.end(),
              [](const TensorInfo& a, const TensorInfo& b) { return a.offset < b.offset; });
    int64_t expected = 0;
    for (TensorInfo& tensor : tensors) {
      if (tensor.offset != expected)
        fail("tensor {} is at byte {} of the data, must be at {}: it {}: the file is damaged", excerpt(tensor.name),
             tensor.offset, expected, tensor.offset < expected ? "overlaps another tensor" : "leaves a hole");
      if (data_start > file_bytes_ || tensor.bytes > file_bytes_ - data_start - tensor.offset)
        fail("tensor {} takes {} bytes from offset {}, the file ends at {}: it is cut off", excerpt(tensor.name),
             tensor.bytes, data_start + tensor.offset, file_bytes_);
      expected = padded(tensor.offset + tensor.bytes);
      tensor.offset += data_start;
    }
  }

  std::string path_;
  File file_;
  int64_t file_bytes_;
  int64_t position_ = 0;  // of the next byte to hand out
  std::vector<std::byte> buffer_;
  int64_t begin_ = 0;  // buffer_[begin_, end_) stands at position_
  int64_t end_ = 0;
};

}  // namespace

GgufFile read_gguf(const std::string& path) { return GgufReader(path).read(); }

bool is_gguf(const std::string& path) {
  try {
    std::array<std::byte, 4> magic;
    const File file = File::open_read(path);
    return file.read_at(0, magic) == 4 && std::memcmp(magic.data(), "GGUF", 4) == 0;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace tokenmill::io
