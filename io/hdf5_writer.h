#pragma once
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tokenmill::io {

class Hdf5Writer;

/// Kinds of numbers that a column may have.
template <typename T>
concept Hdf5Number = std::same_as<T, int8_t> || std::same_as<T, int32_t> || std::same_as<T, int64_t> ||
                     std::same_as<T, float> || std::same_as<T, double>;

/// One dataset that grows at its end: of one dimension, or of rows with as many columns each. What is appended waits until a chunk is full or the writer
/// commits.
class Hdf5ColumnWriter {
 public:
  virtual ~Hdf5ColumnWriter();
  Hdf5ColumnWriter(const Hdf5ColumnWriter&) = delete;
  Hdf5ColumnWriter& operator=(const Hdf5ColumnWriter&) = delete;
  /// Entries appended.
  int64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 protected:
  friend class Hdf5Writer;
  /// columns: 0: the dataset has one dimension.
  Hdf5ColumnWriter(Hdf5Writer& writer, std::string path, int64_t dataset, int64_t columns)
      : writer_(writer), path_(std::move(path)), dataset_(dataset), columns_(columns) {}
  virtual void flush() = 0;
  /// Writes entries behind those written before; memory_type as HDF5's.
  void write(const void* data, int64_t count, int64_t memory_type);
  Hdf5Writer& writer_;
  std::string path_;
  int64_t dataset_;  // an identifier of HDF5's
  int64_t columns_;
  int64_t size_ = 0;

 private:
  int64_t written_ = 0;
};

template <Hdf5Number T>
class Hdf5Numbers final : public Hdf5ColumnWriter {
 public:
  void append(T value) {
    values_.push_back(value);
    ++size_;
    if (static_cast<int64_t>(values_.size()) == kChunkRows) flush();
  }

 private:
  friend class Hdf5Writer;
  static constexpr int64_t kChunkRows = (int64_t{1} << 16) / static_cast<int64_t>(sizeof(T));
  using Hdf5ColumnWriter::Hdf5ColumnWriter;
  void flush() override;
  std::vector<T> values_;
};

/// Rows of as many f32 numbers each: a dataset of two dimensions whose rows are its entries.
class Hdf5Matrix final : public Hdf5ColumnWriter {
 public:
  /// row: as many numbers as the matrix has columns.
  void append(std::span<const float> row);

 private:
  friend class Hdf5Writer;
  static int64_t chunk_rows(int64_t columns) { return std::max<int64_t>(1, (int64_t{1} << 18) / columns); }  // 1 MiB
  using Hdf5ColumnWriter::Hdf5ColumnWriter;
  void flush() override;
  std::vector<float> values_;
};

/// Text of fixed width, padded with NUL: for the few words that a column repeats. They compress well.
class Hdf5Words final : public Hdf5ColumnWriter {
 public:
  static constexpr size_t kWidth = 32;
  /// At most kWidth bytes, no NUL.
  void append(std::string_view word);

 private:
  friend class Hdf5Writer;
  using Hdf5ColumnWriter::Hdf5ColumnWriter;
  void flush() override;
  std::string bytes_;
};

/// UTF-8 text of variable length. Such a string of HDF5's ends at its first NUL: U+0000 is written as U+FFFD, and the
/// column NAME_nul, which exists only then, holds a pair of numbers for each (as two entries): the entry's number and
/// the character's number in it, both from 0.
class Hdf5Texts final : public Hdf5ColumnWriter {
 public:
  void append(std::string_view text);

 private:
  friend class Hdf5Writer;
  using Hdf5ColumnWriter::Hdf5ColumnWriter;
  void flush() override;
  std::string without_nul(std::string_view text);
  std::vector<std::string> texts_;
  int64_t held_bytes_ = 0;
  Hdf5Numbers<int64_t>* nul_ = nullptr;
};

/// Entries [begin, begin + count) of a virtual column: all those of the column in a file. Of a column without
/// entries there is one with a count of 0: its type counts.
struct Hdf5Stretch {
  std::string file;  ///< relative to the directory of the file that shows it
  int64_t begin = 0, count = 0;
};

/// Writes an HDF5 file of columns with bounded memory. The file is complete or absent, as io::AtomicFile's: it is
/// written under another name, synced and renamed by commit(). Chunked, shuffled, compressed (deflate); no time
/// stamps: equal contents give equal bytes. Columns live as long as the writer. Throws Error(kIo) naming the file.
class Hdf5Writer {
 public:
  /// Of which libraries can read the file.
  enum class Format { kAny, kWithVirtualColumns /* 1.10 and later */ };
  explicit Hdf5Writer(const std::string& path, Format format = Format::kAny);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  /// path: "/rows/id"; groups above it are made. about: an attribute that says what the column holds and its unit.
  template <Hdf5Number T>
  Hdf5Numbers<T>& numbers(const std::string& path, const std::string& about);
  Hdf5Words& words(const std::string& path, const std::string& about);
  Hdf5Texts& texts(const std::string& path, const std::string& about);
  /// columns >= 1.
  Hdf5Matrix& matrix(const std::string& path, const std::string& about, int64_t columns);
  /// A column without values of its own: it shows the columns of the same path in other files, one behind the other.
  /// size: of all. What lies in none of the stretches is 0, or an empty text. Format::kWithVirtualColumns only.
  void virtual_column(const std::string& path, int64_t size, const std::vector<Hdf5Stretch>& stretches);
  /// An attribute of the file itself, or of a column or group that exists.
  void attribute(const std::string& object, const std::string& name, const std::string& text);
  void commit();

 private:
  friend class Hdf5ColumnWriter;
  friend class Hdf5Texts;
  int64_t create(const std::string& path, int64_t type, int64_t chunk_rows, int64_t columns);
  template <typename Column>
  Column& add(const std::string& path, const std::string& about, int64_t type, int64_t chunk_rows, int64_t columns = 0);
  template <typename Function>
  void named(Function&& function);
  std::string path_, temporary_path_;
  int64_t file_ = -1;  // an identifier of HDF5's
  bool committed_ = false;
  std::vector<std::unique_ptr<Hdf5ColumnWriter>> columns_;
};

}  // namespace tokenmill::io
