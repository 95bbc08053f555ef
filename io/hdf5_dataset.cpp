#include "io/hdf5_dataset.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "io/utf8.h"

namespace tokenmill::io {
namespace {

constexpr int64_t kMaxChunkBytes = int64_t{1} << 30;  // the library holds a chunk whole
constexpr size_t kCacheSlots = 521;                   // of chunks; prime, as the library's own

std::string class_name(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return fmt::format("{}-bit integers", 8 * H5Tget_size(type));
    case H5T_FLOAT:
      return "floating-point numbers";
    case H5T_STRING:
      return "strings";
    case H5T_COMPOUND:
      return "compound values";
    case H5T_VLEN:
      return "variable-length lists";
    case H5T_ARRAY:
      return "arrays";
    case H5T_ENUM:
      return "enumerated values";
    default:
      return "values of a kind that is not read";
  }
}

/// The file that object is in, as it was opened.
std::string file_name(hid_t file) {
  std::string name(static_cast<size_t>(TM_HDF5(H5Fget_name(file, nullptr, 0))), '\0');
  TM_HDF5(H5Fget_name(file, name.data(), name.size() + 1));
  return name;
}

}  // namespace

Hdf5Dataset::Hdf5Dataset(hid_t file, const std::string& path, std::string where) : where_(std::move(where)) {
  silence_hdf5();
  dataset_ = {H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose};
  if (!dataset_.is_open()) {
    const std::string reason = hdf5_reason();  // before the next call
    throw Error(ErrorKind::kInput, "{}: cannot be opened as a dataset: {}; the file has {}", where_, reason,
                list_hdf5(file, "/"));
  }
  type_ = {TM_HDF5(H5Dget_type(dataset_)), H5Tclose};
  space_ = {TM_HDF5(H5Dget_space(dataset_)), H5Sclose};
  const int rank = TM_HDF5(H5Sget_simple_extent_ndims(space_));
  if (TM_HDF5(H5Sget_simple_extent_type(space_)) != H5S_SIMPLE || rank != 1)
    throw Error(ErrorKind::kInput, "{}: has {} dimensions; it must have one, the rows", where_, rank);
  hsize_t size = 0;
  TM_HDF5(H5Sget_simple_extent_dims(space_, &size, nullptr));
  if (size > static_cast<hsize_t>(INT64_MAX) / std::max<size_t>(1, H5Tget_size(type_)))
    throw Error(ErrorKind::kIo, "{}: claims {} rows, more than any file holds", where_, size);
  size_ = static_cast<int64_t>(size);
  const Hdf5Id properties(TM_HDF5(H5Dget_create_plist(dataset_)), H5Pclose);
  check_filters(properties);
  check_written(file, properties);
  if (const int64_t bytes = chunk_bytes(properties); bytes > 0) {  // whole chunks are kept: rows come one by one
    const Hdf5Id access(TM_HDF5(H5Pcreate(H5P_DATASET_ACCESS)), H5Pclose);
    TM_HDF5(H5Pset_chunk_cache(access, kCacheSlots, static_cast<size_t>(2 * std::max(bytes, int64_t{1} << 20)), 1.0));
    dataset_ = {};
    dataset_ = {TM_HDF5(H5Dopen2(file, path.c_str(), access)), H5Dclose};
  }
}

std::string Hdf5Dataset::describe_type() const { return class_name(type_); }

bool Hdf5Dataset::is_integer() const { return type_class() == H5T_INTEGER && H5Tget_size(type_) <= 8; }

void Hdf5Dataset::read(int64_t first, int64_t count, hid_t memory_type, void* out, hid_t transfer) const {
  if (count == 0) return;
  try {
    const auto start = static_cast<hsize_t>(first), length = static_cast<hsize_t>(count);
    TM_HDF5(H5Sselect_hyperslab(space_, H5S_SELECT_SET, &start, nullptr, &length, nullptr));
    const Hdf5Id memory(TM_HDF5(H5Screate_simple(1, &length, nullptr)), H5Sclose);
    TM_HDF5(H5Dread(dataset_, memory_type, memory, space_, transfer, out));
  } catch (const Error& error) {
    throw Error(error.kind(), "{}: rows {} to {} cannot be read: {}", where_, first, first + count - 1, error.what());
  }
}

void Hdf5Dataset::check_filters(hid_t properties) const {
  const int num_filters = TM_HDF5(H5Pget_nfilters(properties));
  for (int i = 0; i < num_filters; ++i) {
    std::array<char, 128> name = {};
    unsigned flags = 0, config = 0;
    size_t num_values = 0;
    const H5Z_filter_t filter = TM_HDF5(H5Pget_filter2(properties, static_cast<unsigned>(i), &flags, &num_values,
                                                       nullptr, name.size() - 1, name.data(), &config));
    if (TM_HDF5(H5Zfilter_avail(filter)) > 0) continue;
    throw Error(ErrorKind::kInput,
                "{}: is packed with filter {} ({}), which this HDF5 library does not have; install its plugin and set "
                "HDF5_PLUGIN_PATH, or repack the file with a filter it has: h5repack -f GZIP=4 OLD NEW",
                where_, static_cast<int>(filter), name[0] == '\0' ? "no name" : excerpt(name.data()));
  }
}

/// Rows that nobody wrote would be empty prompts, and their number whatever the file says.
void Hdf5Dataset::check_written(hid_t file, hid_t properties) const {
  if (size_ == 0) return;
  const H5D_layout_t layout = TM_HDF5(H5Pget_layout(properties));
  if (layout == H5D_VIRTUAL) return check_sources(file, properties);
  const auto stored = static_cast<int64_t>(H5Dget_storage_size(dataset_));
  if (layout != H5D_CHUNKED) {
    const int64_t needed = size_ * static_cast<int64_t>(H5Tget_size(type_));
    if (stored < needed)
      throw Error(ErrorKind::kIo, "{}: its {} rows need {} bytes, {} are in the file: not all rows were written",
                  where_, size_, needed, stored);
    return;
  }
  hsize_t rows_per_chunk = 0, num_chunks = 0;
  TM_HDF5(H5Pget_chunk(properties, 1, &rows_per_chunk));
  TM_HDF5(H5Dget_num_chunks(dataset_, space_, &num_chunks));
  const auto needed = (static_cast<hsize_t>(size_) - 1) / rows_per_chunk + 1;
  if (num_chunks < needed)
    throw Error(ErrorKind::kIo, "{}: its {} rows need {} chunks, {} are in the file: not all rows were written", where_,
                size_, needed, num_chunks);
}

/// The library reads rows of a missing source as empty ones.
void Hdf5Dataset::check_sources(hid_t file, hid_t properties) const {
  const std::string own = file_name(file);
  size_t num_sources = 0;
  TM_HDF5(H5Pget_virtual_count(properties, &num_sources));
  for (size_t i = 0; i < num_sources; ++i) {
    std::string name(static_cast<size_t>(TM_HDF5(H5Pget_virtual_filename(properties, i, nullptr, 0))), '\0');
    TM_HDF5(H5Pget_virtual_filename(properties, i, name.data(), name.size() + 1));
    if (name == "." || name.find('%') != std::string::npos) continue;  // this file; a pattern of names
    const std::filesystem::path beside = std::filesystem::path(own).parent_path() / name;
    if (::access(beside.c_str(), R_OK) != 0 && ::access(name.c_str(), R_OK) != 0)
      throw Error(ErrorKind::kIo, "{}: some of its rows are in {}, which is not there or cannot be read", where_,
                  excerpt(beside.string()));
  }
}

/// 0: not in chunks.
int64_t Hdf5Dataset::chunk_bytes(hid_t properties) const {
  if (TM_HDF5(H5Pget_layout(properties)) != H5D_CHUNKED) return 0;
  hsize_t rows = 0;
  TM_HDF5(H5Pget_chunk(properties, 1, &rows));
  const size_t element = H5Tget_size(type_);
  if (rows > static_cast<hsize_t>(kMaxChunkBytes) / std::max<size_t>(1, element))
    throw Error(ErrorKind::kInput,
                "{}: has chunks of {} rows of {} bytes, and a chunk is unpacked whole; at most {} bytes are allowed: "
                "h5repack -l CHUNK=ROWS OLD NEW makes smaller ones",
                where_, rows, element, kMaxChunkBytes);
  return static_cast<int64_t>(rows * element);
}

}  // namespace tokenmill::io
