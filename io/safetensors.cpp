#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "io/file.h"
#include "io/json.h"
#include "io/utf8.h"
#include "kernels/core/error.h"

namespace tokenmill::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = int64_t{256} << 20;

struct SafetensorsType {
  std::string_view name;
  int64_t bits;
  std::optional<WeightFormat> format;
};
constexpr SafetensorsType kTypes[] = {
    {"F32", 32, WeightFormat::kF32},
    {"F16", 16, WeightFormat::kF16},
    {"BF16", 16, WeightFormat::kBF16},
    {"BOOL", 8, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"F64", 64, {}},
    {"C64", 64, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

template <typename... Args>
[[noreturn]] void fail(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kIo, "{}: {}", path, fmt::format(format, std::forward<Args>(args)...));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;  // a file that cannot be reached is reported when it is opened
  return fs::exists(path, ignored);
}

/// Reads the tensors of one file's header.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, int32_t file_index) : path_(path), file_index_(file_index) {}

  std::vector<TensorInfo> read() {
    const JsonValue header = read_header();
    std::vector<TensorInfo> tensors;
    for (const auto& [name, value] : header.members()) {
      if (name == "__metadata__") {
        check_metadata(value);
      } else {
        tensors.push_back(read_tensor(name, value));
      }
    }
    check_coverage(tensors);
    return tensors;
  }

 private:
  JsonValue read_header() {
    const File file = File::open_read(path_);
    const int64_t size = file.size();
    std::array<std::byte, 8> length_bytes;
    if (size < 8) fail(path_, "is no safetensors file: it has {} bytes, the length field alone takes 8", size);
    file.read_exactly_at(0, length_bytes);
    uint64_t length = 0;
    std::memcpy(&length, length_bytes.data(), 8);  // little-endian, as this CPU
    if (length > static_cast<uint64_t>(kMaxSafetensorsHeaderBytes))
      fail(path_,
           "the header's length is given as {} bytes; at most {} are allowed: not a safetensors file, or damaged",
           length, kMaxSafetensorsHeaderBytes);
    if (static_cast<int64_t>(length) > size - 8)
      fail(path_, "the header's length is given as {} bytes, the file has {} behind the length field: it is cut off",
           length, size - 8);
    data_start_ = 8 + static_cast<int64_t>(length);
    data_bytes_ = size - data_start_;
    std::string text(length, '\0');
    file.read_exactly_at(8, std::as_writable_bytes(std::span(text)));
    if (text.empty() || text[0] != '{') fail(path_, "the header is not a JSON object");
    try {
      return parse_json(text, "the header");
    } catch (const Error& error) {
      fail(path_, "{}", error.what());
    }
  }

  void check_metadata(const JsonValue& metadata) const {
    if (!metadata.is_object()) fail(path_, "__metadata__ is {}, must be an object of strings", metadata.kind_name());
    for (const auto& [key, value] : metadata.members())
      if (!value.is_string()) fail(path_, "__metadata__: {} is {}, must be a string", excerpt(key), value.kind_name());
  }

  TensorInfo read_tensor(const std::string& name, const JsonValue& value) const {
    if (!value.is_object()) fail_tensor(name, "is {}, must be an object", value.kind_name());
    TensorInfo tensor{.name = name, .file_index = file_index_};
    const std::string& type_name = member(name, value, "dtype", JsonValue::Kind::kString).as_string();
    const SafetensorsType* const type =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.name == type_name; });
    if (type == std::end(kTypes)) fail_tensor(name, "dtype {} is unknown", excerpt(type_name));
    tensor.type_name = type_name;
    tensor.format = type->format;
    for (const JsonValue& extent : member(name, value, "shape", JsonValue::Kind::kArray).items())
      tensor.shape.push_back(count(name, "shape", extent));
    if (tensor.shape.size() > kMaxTensorDims)
      fail_tensor(name, "has {} dimensions; at most {} are allowed", tensor.shape.size(), kMaxTensorDims);

    const std::vector<JsonValue>& offsets = member(name, value, "data_offsets", JsonValue::Kind::kArray).items();
    if (offsets.size() != 2) fail_tensor(name, "data_offsets has {} numbers, must have 2", offsets.size());
    const int64_t begin = count(name, "data_offsets", offsets[0]);
    const int64_t end = count(name, "data_offsets", offsets[1]);
    if (begin > end) fail_tensor(name, "data_offsets [{}, {}] end before they start", begin, end);
    if (end > data_bytes_)
      fail_tensor(name, "data_offsets [{}, {}] reach past the {} bytes of data: the file is cut off or damaged", begin,
                  end, data_bytes_);
    const std::optional<int64_t> bytes = tensor_bytes(tensor.shape, 1, type->bits);
    if (!bytes) fail_tensor(name, "shape {} of {} has no valid size in bytes", shape_text(tensor.shape), type_name);
    if (*bytes != end - begin)
      fail_tensor(name, "shape {} of {} takes {} bytes, data_offsets [{}, {}] hold {}", shape_text(tensor.shape),
                  type_name, *bytes, begin, end, end - begin);
    tensor.offset = data_start_ + begin;
    tensor.bytes = *bytes;
    return tensor;
  }

  /// The tensors must follow each other without overlap or hole and fill the data.
  void check_coverage(std::vector<TensorInfo>& tensors) const {
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    int64_t covered = data_start_;
    for (const TensorInfo& tensor : tensors) {
      if (tensor.offset != covered)
        fail_tensor(tensor.name, "starts at byte {} of the data; {} {}: the file is damaged",
                    tensor.offset - data_start_,
                    tensor.offset < covered ? "it overlaps the tensor before it, which ends at"
                                            : "no tensor covers the bytes from",
                    covered - data_start_);
      covered += tensor.bytes;
    }
    if (covered != data_start_ + data_bytes_)
      fail(path_, "has {} bytes of data, its tensors cover {}: the file is damaged", data_bytes_,
           covered - data_start_);
  }

  const JsonValue& member(const std::string& name, const JsonValue& tensor, const char* field,
                          JsonValue::Kind kind) const {
    const JsonValue* value = tensor.find(field);
    if (!value) fail_tensor(name, "{} is missing", field);
    if (value->kind() != kind)
      fail_tensor(name, "{} is {}, must be {}", field, value->kind_name(),
                  kind == JsonValue::Kind::kString ? "a string" : "an array");
    return *value;
  }

  int64_t count(const std::string& name, const char* field, const JsonValue& value) const {
    if (value.fits_int64() && value.as_int64() >= 0) return value.as_int64();
    fail_tensor(name, "{} holds {}, must hold integers from 0 to 2^63 - 1", field,
                value.is_number() ? excerpt(value.number_text(), 40) : value.kind_name());
  }

  template <typename... Args>
  [[noreturn]] void fail_tensor(const std::string& name, fmt::format_string<Args...> format, Args&&... args) const {
    fail(path_, "tensor {}: {}", excerpt(name), fmt::format(format, std::forward<Args>(args)...));
  }

  const std::string& path_;
  int32_t file_index_;
  int64_t data_start_ = 0;
  int64_t data_bytes_ = 0;
};

/// A shard's name in the index must name a file of the same directory.
void check_shard_name(const std::string& index_path, const std::string& tensor, const std::string& shard) {
  if (shard.empty() || shard == "." || shard == ".." || shard.find('/') != shard.npos || shard.find('\0') != shard.npos)
    fail(index_path, "tensor {}: file \"{}\" is not a plain file name in the index's own directory", excerpt(tensor),
         excerpt(shard));
}

TensorIndex read_sharded(const std::string& index_path) {
  JsonValue index;
  try {
    index = parse_json(read_file(index_path, kMaxIndexBytes), index_path);
  } catch (const Error& error) {
    throw Error(ErrorKind::kIo, error.what());
  }
  const JsonValue* weight_map = index.is_object() ? index.find("weight_map") : nullptr;
  if (!weight_map || !weight_map->is_object())
    fail(index_path, "weight_map is {}, must be an object from tensor names to files",
         weight_map ? weight_map->kind_name() : "missing");
  if (weight_map->members().empty()) fail(index_path, "weight_map names no tensor");

  std::map<std::string, int32_t> shards;  // in order of names: the order of files
  for (const auto& [tensor, shard] : weight_map->members()) {
    if (!shard.is_string())
      fail(index_path, "tensor {}: its file is {}, must be a string", excerpt(tensor), shard.kind_name());
    check_shard_name(index_path, tensor, shard.as_string());
    shards.emplace(shard.as_string(), 0);
  }
  const fs::path directory = fs::path(index_path).parent_path();
  std::vector<std::string> files;
  std::vector<TensorInfo> tensors;
  for (auto& [shard, file_index] : shards) {
    file_index = static_cast<int32_t>(files.size());
    files.push_back((directory / shard).string());
    if (!is_there(files.back())) fail(index_path, "names {}, which is missing", files.back());
    std::vector<TensorInfo> found = HeaderReader(files.back(), file_index).read();
    std::move(found.begin(), found.end(), std::back_inserter(tensors));
  }
  TensorIndex result(std::move(files), std::move(tensors));
  for (const auto& [tensor, shard] : weight_map->members()) {
    const TensorInfo* found = result.find(tensor);
    if (!found || found->file_index != shards.at(shard.as_string()))
      fail(index_path, "tensor {} should be in {}, which does not hold it", excerpt(tensor), shard.as_string());
  }
  return result;
}

std::vector<fs::path> safetensors_in(const std::string& directory) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".safetensors") found.push_back(it->path());
  if (error) fail(directory, "cannot list the directory: {}", error.message());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

TensorIndex read_safetensors_file(const std::string& path) {
  std::vector<TensorInfo> tensors = HeaderReader(path, 0).read();
  return TensorIndex({path}, std::move(tensors));
}

TensorIndex read_safetensors(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return read_safetensors_file(path);
  const fs::path directory(path);
  if (is_there(directory / kSingleFile)) return read_safetensors_file((directory / kSingleFile).string());
  if (is_there(directory / kIndexFile)) return read_sharded((directory / kIndexFile).string());
  const std::vector<fs::path> found = safetensors_in(path);
  if (found.empty()) fail(path, "holds no *.safetensors file");
  if (found.size() > 1)
    fail(path, "holds {} *.safetensors files ({}, {}, ...) but no {}; add the index, or give one file", found.size(),
         found[0].filename().string(), found[1].filename().string(), kIndexFile);
  return read_safetensors_file(found.front().string());
}

bool has_safetensors(const std::string& directory) {
  return is_there(fs::path(directory) / kIndexFile) || !safetensors_in(directory).empty();
}

}  // namespace tokenmill::io
