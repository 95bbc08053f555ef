#pragma once
#include <cstdint>
#include <string>

#include "io/hdf5.h"

namespace tokenmill::io {

/// A one-dimensional dataset open for reading. Checked when opened: the library has its filters, every row was written
/// (a file may claim any number of rows), and a chunk fits in memory.
class Hdf5Dataset {
 public:
  /// where: "prompts.h5:/text", for messages. Throws Error(kInput) naming what is missing or of another kind.
  Hdf5Dataset(hid_t file, const std::string& path, std::string where);

  const std::string& where() const { return where_; }
  int64_t size() const { return size_; }
  hid_t type() const { return type_; }
  H5T_class_t type_class() const { return H5Tget_class(type_); }
  /// "strings", "64-bit integers", "compound values": for messages.
  std::string describe_type() const;
  bool is_integer() const;

  /// Elements [first, first + count) as memory_type; transfer as H5Dread's. Throws Error(kIo).
  void read(int64_t first, int64_t count, hid_t memory_type, void* out, hid_t transfer = H5P_DEFAULT) const;

 private:
  void check_filters(hid_t properties) const;
  void check_written(hid_t file, hid_t properties) const;
  void check_sources(hid_t file, hid_t properties) const;
  int64_t chunk_bytes(hid_t properties) const;
  std::string where_;
  Hdf5Id dataset_, type_, space_;
  int64_t size_ = 0;
};

}  // namespace tokenmill::io
