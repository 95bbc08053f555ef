#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "io/hdf5.h"

namespace tokenmill::io {

/// One value a row of an HDF5 file, read a block of rows at a time and given as JSON text. Damaged contents throw
/// Error(kIo), what cannot be a column Error(kInput); both name the file and the dataset.
class Hdf5Column {
 public:
  virtual ~Hdf5Column() = default;
  virtual int64_t num_rows() const = 0;
  /// Reads rows [first, first + n), n being at least 1, at most count, and as many as a few MiB hold; returns n. The
  /// block read before is gone.
  virtual int64_t load(int64_t first, int64_t count) = 0;
  /// Appends the value of a row of the block (0: its first). Text that is not UTF-8 is passed on as it is.
  virtual void append_json(int64_t index, std::string& out) const = 0;
  /// Bytes of a value too long to be read, 0 for one that was read.
  virtual int64_t oversized_bytes(int64_t index) const = 0;
};

/// A dataset of strings, of fixed or variable length, or a group with `values` and `offsets`: rows of integers, row i
/// being values[offsets[i] .. offsets[i + 1]). where: "prompts.h5:/text", for messages. Values of more than max_bytes
/// are passed over. The file outlives the column.
std::unique_ptr<Hdf5Column> open_hdf5_prompts(hid_t file, const std::string& path, const std::string& where,
                                              int64_t max_bytes);

/// A dataset of strings or of integers.
std::unique_ptr<Hdf5Column> open_hdf5_ids(hid_t file, const std::string& path, const std::string& where,
                                          int64_t max_bytes);

}  // namespace tokenmill::io
