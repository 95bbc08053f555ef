#include "io/hdf5_tables.h"

#include <utility>

#include "io/hdf5_dataset.h"
#include "io/hdf5_extent.h"

namespace tokenmill::io {

Hdf5Tables::Hdf5Tables(std::string path) : path_(std::move(path)) {
  const Hdf5Id file = open_hdf5(path_);
  for (const std::string& column : hdf5_datasets(file)) sizes_[column] = extent_of(file, column).size;
}

std::string Hdf5Tables::about(const std::string& column) const {
  return hdf5_text_attribute(open_hdf5(path_), column, "about");
}

void Hdf5Tables::read(const std::string& column, int64_t first, std::span<int64_t> values) const {
  const Hdf5Id file = open_hdf5(path_);
  const Hdf5Dataset dataset(file, column, path_ + ":" + column);
  dataset.read(first, static_cast<int64_t>(values.size()), H5T_NATIVE_INT64, values.data());
}

}  // namespace tokenmill::io
