#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace tokenmill::io {

/// The columns of a file that Hdf5Writer wrote. Each call opens the file and closes it again. Throws Error(kIo) or
/// Error(kInput) naming the file.
class Hdf5Tables {
 public:
  explicit Hdf5Tables(std::string path);
  const std::string& path() const { return path_; }
  /// Entries of each column, by path ("/rows/id").
  const std::map<std::string, int64_t>& sizes() const { return sizes_; }
  /// The attribute of that name.
  std::string about(const std::string& column) const;
  /// Entries of a column of integers from `first` on.
  void read(const std::string& column, int64_t first, std::span<int64_t> values) const;

 private:
  std::string path_;
  std::map<std::string, int64_t> sizes_;
};

}  // namespace tokenmill::io
