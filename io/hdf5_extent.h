#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/hdf5.h"

namespace tokenmill::io {

/// Type and shape of a dataset of one or two dimensions.
struct Hdf5Extent {
  Hdf5Id type;
  int64_t size = 0;     ///< entries
  int64_t columns = 0;  ///< of each; 0: the dataset has one dimension
};
/// Throws Error(kIo) when the file has no such dataset.
Hdf5Extent extent_of(hid_t file, const std::string& path);

/// Paths of all datasets of a file ("/rows/id"), in alphabetical order.
std::vector<std::string> hdf5_datasets(hid_t file);

/// A text attribute of an object. Throws Error(kIo) when it has none.
std::string hdf5_text_attribute(hid_t file, const std::string& path, const std::string& name);

}  // namespace tokenmill::io
