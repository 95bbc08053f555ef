#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "io/hdf5.h"

namespace tokenmill::test {

/// Builds an HDF5 file in memory, one-dimensional datasets only.
class Hdf5Builder {
 public:
  explicit Hdf5Builder(bool latest_format = false) {
    const io::Hdf5Id access(TM_HDF5(H5Pcreate(H5P_FILE_ACCESS)), H5Pclose);
    TM_HDF5(H5Pset_fapl_core(access, size_t{1} << 16, false));
    if (latest_format) TM_HDF5(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST));
    file_ = {TM_HDF5(H5Fcreate("in memory", H5F_ACC_TRUNC, H5P_DEFAULT, access)), H5Fclose};
  }

  /// Chunks and packing of the datasets that follow; 0: contiguous.
  Hdf5Builder& chunk(hsize_t rows, bool deflate = false) {
    properties_ = {TM_HDF5(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose};
    if (rows > 0) TM_HDF5(H5Pset_chunk(properties_, 1, &rows));
    if (deflate) TM_HDF5(H5Pset_deflate(properties_, 4));
    return *this;
  }
  hid_t properties() const { return properties_; }
  hid_t file() const { return file_; }
  Hdf5Builder& group(const char* name) {
    io::Hdf5Id(TM_HDF5(H5Gcreate2(file_, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)), H5Gclose);
    return *this;
  }
  Hdf5Builder& texts(const char* name, const std::vector<std::string>& texts) {
    std::vector<const char*> strings;
    for (const std::string& text : texts) strings.push_back(text.c_str());
    const io::Hdf5Id type(TM_HDF5(H5Tcopy(H5T_C_S1)), H5Tclose);
    TM_HDF5(H5Tset_size(type, H5T_VARIABLE));
    return write(name, type, strings.data(), strings.size());
  }
  Hdf5Builder& fixed(const char* name, const std::vector<std::string>& texts, size_t width,
                     H5T_str_t padding = H5T_STR_NULLPAD) {
    std::string bytes;
    for (std::string text : texts) {
      text.resize(width, padding == H5T_STR_SPACEPAD ? ' ' : '\0');
      bytes += text;
    }
    const io::Hdf5Id type(TM_HDF5(H5Tcopy(H5T_C_S1)), H5Tclose);
    TM_HDF5(H5Tset_size(type, width));
    TM_HDF5(H5Tset_strpad(type, padding));
    return write(name, type, bytes.data(), texts.size());
  }
  /// type: in the file.
  Hdf5Builder& numbers(const char* name, const std::vector<int64_t>& values, hid_t type = H5T_STD_I64LE) {
    const io::Hdf5Id dataset = create(name, type, values.size());
    if (!values.empty())
      TM_HDF5(H5Dwrite(dataset, type == H5T_STD_U64LE ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64, H5S_ALL, H5S_ALL,
                       H5P_DEFAULT, values.data()));
    return *this;
  }
  /// A dataset to which nothing is written.
  io::Hdf5Id create(const char* name, hid_t type, hsize_t rows) {
    const io::Hdf5Id space(TM_HDF5(H5Screate_simple(1, &rows, nullptr)), H5Sclose);
    return {TM_HDF5(H5Dcreate2(file_, name, type, space, H5P_DEFAULT, properties_, H5P_DEFAULT)), H5Dclose};
  }

  std::string bytes() {
    TM_HDF5(H5Fflush(file_, H5F_SCOPE_GLOBAL));
    std::string image(static_cast<size_t>(TM_HDF5(H5Fget_file_image(file_, nullptr, 0))), '\0');
    TM_HDF5(H5Fget_file_image(file_, image.data(), image.size()));
    return image;
  }

 private:
  Hdf5Builder& write(const char* name, hid_t type, const void* data, size_t rows) {
    const io::Hdf5Id dataset = create(name, type, rows);
    if (rows > 0) TM_HDF5(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data));
    return *this;
  }
  io::Hdf5Id file_;
  io::Hdf5Id properties_{TM_HDF5(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose};
};

}  // namespace tokenmill::test
