#include "io/hdf5_extent.h"

#include <algorithm>

#include "kernels/core/check.h"

namespace tokenmill::io {
namespace {

herr_t add_path(hid_t, const char* name, const H5L_info_t*, void* paths) {
  static_cast<std::vector<std::string>*>(paths)->push_back(std::string("/") + name);
  return 0;
}

bool is_dataset(hid_t file, const std::string& path) {
  const Hdf5Id object(TM_HDF5(H5Oopen(file, path.c_str(), H5P_DEFAULT)), H5Oclose);
  return H5Iget_type(object) == H5I_DATASET;
}

}  // namespace

Hdf5Extent extent_of(hid_t file, const std::string& path) {
  const Hdf5Id dataset(TM_HDF5(H5Dopen2(file, path.c_str(), H5P_DEFAULT)), H5Dclose);
  const Hdf5Id space(TM_HDF5(H5Dget_space(dataset)), H5Sclose);
  hsize_t dims[2] = {0, 0};
  const int rank = TM_HDF5(H5Sget_simple_extent_ndims(space));
  TM_ASSERT(rank == 1 || rank == 2, "{} has {} dimensions", path, rank);
  TM_HDF5(H5Sget_simple_extent_dims(space, dims, nullptr));
  return {.type = {TM_HDF5(H5Dget_type(dataset)), H5Tclose},
          .size = static_cast<int64_t>(dims[0]),
          .columns = static_cast<int64_t>(dims[1])};
}

std::vector<std::string> hdf5_datasets(hid_t file) {
  std::vector<std::string> paths;
  TM_HDF5(H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, add_path, &paths));
  std::erase_if(paths, [&](const std::string& path) { return !is_dataset(file, path); });
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string hdf5_text_attribute(hid_t file, const std::string& path, const std::string& name) {
  const Hdf5Id attribute(TM_HDF5(H5Aopen_by_name(file, path.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT)), H5Aclose);
  const Hdf5Id type(TM_HDF5(H5Aget_type(attribute)), H5Tclose);
  TM_ASSERT(TM_HDF5(H5Tis_variable_str(type)) > 0, "attribute {} of {} is no text", name, path);
  char* text = nullptr;
  TM_HDF5(H5Aread(attribute, type, &text));
  std::string out = text == nullptr ? "" : text;
  H5free_memory(text);
  return out;
}

}  // namespace tokenmill::io
