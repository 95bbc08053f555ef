#include "io/hdf5_column.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <string_view>
#include <vector>

#include "io/hdf5_dataset.h"

namespace tokenmill::io {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of the values read at a time, unless one alone is longer
constexpr int64_t kBlockRows = 4096;

/// As append_json_string, but bytes from 0x80 on are copied unseen: whether they are UTF-8 is the row's affair.
void append_raw_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

/// Memory for variable-length strings, each behind its length (HDF5's own mark of the end is a NUL, which a string may
/// hold). What goes beyond the budget is refused: the library then gives up and the read fails.
class Arena {
 public:
  void reset(int64_t budget_bytes) {
    pieces_.clear();
    left_bytes_ = budget_bytes;
    refused_bytes_ = 0;
  }
  /// What the allocation that did not fit asked for; 0: all did.
  int64_t refused_bytes() const { return refused_bytes_; }

  static void* allocate(size_t bytes, void* self) noexcept {
    auto& arena = *static_cast<Arena*>(self);
    const auto wanted = static_cast<int64_t>(std::min(bytes, size_t{INT64_MAX}));
    if (wanted > arena.left_bytes_) {
      arena.refused_bytes_ = wanted;
      return nullptr;
    }
    try {
      arena.pieces_.emplace_back(new char[sizeof(size_t) + bytes]);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    arena.left_bytes_ -= wanted;
    std::memcpy(arena.pieces_.back().get(), &bytes, sizeof bytes);
    return arena.pieces_.back().get() + sizeof bytes;
  }
  static void release(void*, void*) noexcept {}

  /// What the library put into memory of this arena; it asks for one byte more than the string has.
  static std::string_view text(const char* string) {
    if (string == nullptr) return {};
    size_t bytes;
    std::memcpy(&bytes, string - sizeof bytes, sizeof bytes);
    return {string, bytes - 1};
  }

 private:
  std::vector<std::unique_ptr<char[]>> pieces_;
  int64_t left_bytes_ = 0, refused_bytes_ = 0;
};

class VariableTexts final : public Hdf5Column {
 public:
  VariableTexts(Hdf5Dataset dataset, int64_t max_bytes)
      : dataset_(std::move(dataset)),
        max_bytes_(max_bytes),
        memory_type_(TM_HDF5(H5Tcopy(dataset_.type())), H5Tclose),
        transfer_(TM_HDF5(H5Pcreate(H5P_DATASET_XFER)), H5Pclose) {
    TM_HDF5(H5Pset_vlen_mem_manager(transfer_, Arena::allocate, &arena_, Arena::release, &arena_));
  }
  int64_t num_rows() const override { return dataset_.size(); }
  int64_t load(int64_t first, int64_t count) override {
    for (count = std::min(count, kBlockRows);; count /= 4) {
      const bool alone = count <= 1;
      arena_.reset(alone ? max_bytes_ + 1 : kBlockBytes);
      strings_.assign(static_cast<size_t>(std::max<int64_t>(1, count)), nullptr);
      const auto rows = static_cast<int64_t>(strings_.size());
      try {
        dataset_.read(first, rows, memory_type_, strings_.data(), transfer_);
      } catch (const Error&) {
        if (arena_.refused_bytes() == 0) throw;
        if (!alone) continue;
        strings_[0] = nullptr;
      }
      return rows;
    }
  }
  void append_json(int64_t index, std::string& out) const override {
    append_raw_json_string(out, Arena::text(strings_[static_cast<size_t>(index)]));
  }
  int64_t oversized_bytes(int64_t) const override { return std::max<int64_t>(0, arena_.refused_bytes() - 1); }

 private:
  Hdf5Dataset dataset_;
  int64_t max_bytes_;
  Hdf5Id memory_type_, transfer_;
  Arena arena_;
  std::vector<char*> strings_;
};

class FixedTexts final : public Hdf5Column {
 public:
  FixedTexts(Hdf5Dataset dataset, int64_t max_bytes)
      : dataset_(std::move(dataset)),
        width_(static_cast<int64_t>(H5Tget_size(dataset_.type()))),
        padding_(TM_HDF5(H5Tget_strpad(dataset_.type()))) {
    if (width_ > max_bytes)
      throw Error(ErrorKind::kInput, "{}: its strings have {} bytes each; --max-record-bytes is {}: raise it",
                  dataset_.where(), width_, max_bytes);
  }
  int64_t num_rows() const override { return dataset_.size(); }
  int64_t load(int64_t first, int64_t count) override {
    count = std::min({count, kBlockRows, std::max<int64_t>(1, kBlockBytes / width_)});
    bytes_.resize(static_cast<size_t>(count * width_));
    dataset_.read(first, count, dataset_.type(), bytes_.data());
    return count;
  }
  void append_json(int64_t index, std::string& out) const override {
    std::string_view text(bytes_.data() + index * width_, static_cast<size_t>(width_));
    if (padding_ == H5T_STR_NULLTERM)
      text = text.substr(0, text.find('\0'));
    else
      text = text.substr(0, text.find_last_not_of(padding_ == H5T_STR_SPACEPAD ? ' ' : '\0') + 1);
    append_raw_json_string(out, text);
  }
  int64_t oversized_bytes(int64_t) const override { return 0; }

 private:
  Hdf5Dataset dataset_;
  int64_t width_;
  H5T_str_t padding_;
  std::vector<char> bytes_;
};

/// Integers of any width and sign, digit for digit.
class Integers {
 public:
  explicit Integers(Hdf5Dataset dataset) : dataset_(std::move(dataset)) {
    if (!dataset_.is_integer())
      throw Error(ErrorKind::kInput, "{}: holds {}; it must hold integers", dataset_.where(), dataset_.describe_type());
    is_signed_ = TM_HDF5(H5Tget_sign(dataset_.type())) != H5T_SGN_NONE;
  }
  const Hdf5Dataset& dataset() const { return dataset_; }
  void read(int64_t first, int64_t count) {
    values_.resize(static_cast<size_t>(count));
    dataset_.read(first, count, is_signed_ ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64, values_.data());
  }
  void append(int64_t index, std::string& out) const {
    const int64_t value = values_[static_cast<size_t>(index)];
    if (is_signed_)
      fmt::format_to(std::back_inserter(out), "{}", value);
    else
      fmt::format_to(std::back_inserter(out), "{}", static_cast<uint64_t>(value));
  }
  std::string text(int64_t index) const {
    std::string out;
    append(index, out);
    return out;
  }
  /// For numbers that must not be negative: those above INT64_MAX are.
  int64_t operator[](int64_t index) const { return values_[static_cast<size_t>(index)]; }

 private:
  Hdf5Dataset dataset_;
  bool is_signed_ = true;
  std::vector<int64_t> values_;
};

class Numbers final : public Hdf5Column {
 public:
  explicit Numbers(Hdf5Dataset dataset) : integers_(std::move(dataset)) {}
  int64_t num_rows() const override { return integers_.dataset().size(); }
  int64_t load(int64_t first, int64_t count) override {
    count = std::min(count, kBlockRows);
    integers_.read(first, count);
    return count;
  }
  void append_json(int64_t index, std::string& out) const override { integers_.append(index, out); }
  int64_t oversized_bytes(int64_t) const override { return 0; }

 private:
  Integers integers_;
};

class RaggedNumbers final : public Hdf5Column {
 public:
  RaggedNumbers(Hdf5Dataset values, Hdf5Dataset offsets, int64_t max_bytes)
      : values_(std::move(values)), offsets_(std::move(offsets)), max_values_(max_bytes / kBytesPerValue) {
    if (offsets_.dataset().size() == 0)
      throw Error(ErrorKind::kInput, "{}: is empty; it must hold one number more than there are rows, the first 0",
                  offsets_.dataset().where());
  }
  int64_t num_rows() const override { return offsets_.dataset().size() - 1; }
  int64_t load(int64_t first, int64_t count) override {
    count = std::min(count, kBlockRows);
    offsets_.read(first, count + 1);
    check_offsets(first, count);
    int64_t rows = 1;
    while (rows < count && offsets_[rows + 1] - offsets_[0] <= kBlockValues) ++rows;
    oversized_ = rows == 1 && offsets_[1] - offsets_[0] > max_values_;
    if (!oversized_) values_.read(offsets_[0], offsets_[rows] - offsets_[0]);
    return rows;
  }
  void append_json(int64_t index, std::string& out) const override {
    out += '[';
    for (int64_t i = offsets_[index]; i < offsets_[index + 1] && !oversized_; ++i) {
      if (i > offsets_[index]) out += ',';
      values_.append(i - offsets_[0], out);
    }
    out += ']';
  }
  int64_t oversized_bytes(int64_t index) const override {
    return oversized_ ? kBytesPerValue * (offsets_[index + 1] - offsets_[index]) : 0;
  }

 private:
  static constexpr int64_t kBytesPerValue = 2;  // of JSON text, at least: a digit and a comma
  static constexpr int64_t kBlockValues = kBlockBytes / 8;
  void check_offsets(int64_t first, int64_t count) const {
    for (int64_t i = 0; i <= count; ++i) {
      if (offsets_[i] >= 0 && offsets_[i] <= values_.dataset().size() && (i == 0 || offsets_[i] >= offsets_[i - 1]))
        continue;
      throw Error(ErrorKind::kIo,
                  "{}: number {} is {}; offsets must not descend and lie between 0 and {}, the size of values{}",
                  offsets_.dataset().where(), first + i, offsets_.text(i), values_.dataset().size(),
                  i == 0 ? "" : fmt::format(", and the one before is {}", offsets_.text(i - 1)));
    }
  }

  Integers values_, offsets_;
  int64_t max_values_;
  bool oversized_ = false;
};

std::unique_ptr<Hdf5Column> make_texts(Hdf5Dataset dataset, int64_t max_bytes) {
  if (TM_HDF5(H5Tis_variable_str(dataset.type())) > 0)
    return std::make_unique<VariableTexts>(std::move(dataset), max_bytes);
  return std::make_unique<FixedTexts>(std::move(dataset), max_bytes);
}

}  // namespace

std::unique_ptr<Hdf5Column> open_hdf5_prompts(hid_t file, const std::string& path, const std::string& where,
                                              int64_t max_bytes) {
  silence_hdf5();
  const Hdf5Id object(H5Oopen(file, path.c_str(), H5P_DEFAULT), H5Oclose);
  if (!object.is_open()) {
    const std::string reason = hdf5_reason();  // before the next call
    throw Error(ErrorKind::kInput, "{}: cannot be opened: {}; the file has {}", where, reason, list_hdf5(file, "/"));
  }
  if (H5Iget_type(object) == H5I_GROUP) {
    for (const char* name : {"values", "offsets"})
      if (H5Lexists(object, name, H5P_DEFAULT) <= 0)
        throw Error(ErrorKind::kInput,
                    "{}: is a group without {}; a group of prompts holds token ids as values and offsets. It has {}",
                    where, name, list_hdf5(file, path));
    return std::make_unique<RaggedNumbers>(Hdf5Dataset(object, "values", where + "/values"),
                                           Hdf5Dataset(object, "offsets", where + "/offsets"), max_bytes);
  }
  Hdf5Dataset dataset(file, path, where);
  if (dataset.type_class() != H5T_STRING)
    throw Error(ErrorKind::kInput,
                "{}: holds {}; prompts must be strings, or a group with token ids as values and offsets", where,
                dataset.describe_type());
  return make_texts(std::move(dataset), max_bytes);
}

std::unique_ptr<Hdf5Column> open_hdf5_ids(hid_t file, const std::string& path, const std::string& where,
                                          int64_t max_bytes) {
  Hdf5Dataset dataset(file, path, where);
  if (dataset.type_class() == H5T_STRING) return make_texts(std::move(dataset), max_bytes);
  if (!dataset.is_integer())
    throw Error(ErrorKind::kInput, "{}: holds {}; ids must be strings or integers", where, dataset.describe_type());
  return std::make_unique<Numbers>(std::move(dataset));
}

}  // namespace tokenmill::io
