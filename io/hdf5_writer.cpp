#include "io/hdf5_writer.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "io/file.h"
#include "io/hdf5.h"
#include "io/hdf5_extent.h"
#include "io/utf8.h"
#include "kernels/core/check.h"

namespace tokenmill::io {
namespace {

constexpr int64_t kTextsPerChunk = 4096;             // references to texts; the texts themselves are not chunked
constexpr int64_t kMaxHeldBytes = int64_t{4} << 20;  // of texts
constexpr int64_t kWordsPerChunk = 4096;
constexpr unsigned kDeflateLevel = 4;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

template <typename T>
hid_t memory_type();
template <>
hid_t memory_type<int8_t>() {
  return H5T_NATIVE_INT8;
}
template <>
hid_t memory_type<int32_t>() {
  return H5T_NATIVE_INT32;
}
template <>
hid_t memory_type<int64_t>() {
  return H5T_NATIVE_INT64;
}
template <>
hid_t memory_type<float>() {
  return H5T_NATIVE_FLOAT;
}
template <>
hid_t memory_type<double>() {
  return H5T_NATIVE_DOUBLE;
}

Hdf5Id text_type(size_t bytes) {
  Hdf5Id type(TM_HDF5(H5Tcopy(H5T_C_S1)), H5Tclose);
  TM_HDF5(H5Tset_size(type, bytes));
  TM_HDF5(H5Tset_cset(type, H5T_CSET_UTF8));
  if (bytes != H5T_VARIABLE) TM_HDF5(H5Tset_strpad(type, H5T_STR_NULLPAD));
  return type;
}

/// Equal files for equal contents: no times; and no lock, since nobody else knows the temporary name.
hid_t create_file(const std::string& path, Hdf5Writer::Format format) {
  const Hdf5Id creation(TM_HDF5(H5Pcreate(H5P_FILE_CREATE)), H5Pclose);
  TM_HDF5(H5Pset_obj_track_times(creation, false));
  const Hdf5Id access(TM_HDF5(H5Pcreate(H5P_FILE_ACCESS)), H5Pclose);
  const H5F_libver_t version = format == Hdf5Writer::Format::kAny ? H5F_LIBVER_V18 : H5F_LIBVER_V110;
  TM_HDF5(H5Pset_libver_bounds(access, version, version));  // checksums, and old readers
  TM_HDF5(H5Pset_file_locking(access, false, true));
  TM_HDF5(H5Pset_fclose_degree(access, H5F_CLOSE_STRONG));
  return TM_HDF5(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access));
}

/// The groups above path, where they are missing. The library would make them itself, with the time of day in them.
void make_groups(hid_t file, const std::string& path) {
  const Hdf5Id properties(TM_HDF5(H5Pcreate(H5P_GROUP_CREATE)), H5Pclose);
  TM_HDF5(H5Pset_obj_track_times(properties, false));
  for (size_t end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1)) {
    const std::string group = path.substr(0, end);
    if (TM_HDF5(H5Lexists(file, group.c_str(), H5P_DEFAULT)) > 0) continue;
    const Hdf5Id made(TM_HDF5(H5Gcreate2(file, group.c_str(), H5P_DEFAULT, properties, H5P_DEFAULT)), H5Gclose);
  }
}

Hdf5Id space_of(int64_t size, int64_t columns) {
  const hsize_t dims[] = {static_cast<hsize_t>(size), static_cast<hsize_t>(columns)};
  return {TM_HDF5(H5Screate_simple(columns > 0 ? 2 : 1, dims, nullptr)), H5Sclose};
}

}  // namespace

Hdf5ColumnWriter::~Hdf5ColumnWriter() {
  silence_hdf5();
  H5Dclose(dataset_);
}

void Hdf5ColumnWriter::write(const void* data, int64_t count, int64_t memory_type) {
  if (count == 0) return;
  writer_.named([&] {
    const auto columns = static_cast<hsize_t>(columns_), added = static_cast<hsize_t>(count);
    const hsize_t start[] = {static_cast<hsize_t>(written_), 0}, length[] = {added, columns},
                  end[] = {start[0] + added, columns};
    TM_HDF5(H5Dset_extent(dataset_, end));
    const Hdf5Id file_space(TM_HDF5(H5Dget_space(dataset_)), H5Sclose);
    TM_HDF5(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, nullptr, length, nullptr));
    const Hdf5Id space(TM_HDF5(H5Screate_simple(columns_ > 0 ? 2 : 1, length, nullptr)), H5Sclose);
    TM_HDF5(H5Dwrite(dataset_, memory_type, space, file_space, H5P_DEFAULT, data));
    written_ += count;
  });
}

template <Hdf5Number T>
void Hdf5Numbers<T>::flush() {
  write(values_.data(), static_cast<int64_t>(values_.size()), memory_type<T>());
  values_.clear();
}

void Hdf5Matrix::append(std::span<const float> row) {
  TM_ASSERT(static_cast<int64_t>(row.size()) == columns_, "{}: a row of {} numbers, not {}", path_, row.size(), columns_);
  values_.insert(values_.end(), row.begin(), row.end());
  if (++size_ % chunk_rows(columns_) == 0) flush();
}

void Hdf5Matrix::flush() {
  write(values_.data(), static_cast<int64_t>(values_.size()) / columns_, memory_type<float>());
  values_.clear();
}

void Hdf5Words::append(std::string_view word) {
  TM_ASSERT(word.size() <= kWidth && word.find('\0') == word.npos, "{}: \"{}\" is too long", path_, excerpt(word));
  bytes_ += word;
  bytes_.append(kWidth - word.size(), '\0');
  if (++size_ % kWordsPerChunk == 0) flush();
}

void Hdf5Words::flush() {
  write(bytes_.data(), static_cast<int64_t>(bytes_.size() / kWidth), text_type(kWidth));
  bytes_.clear();
}

void Hdf5Texts::append(std::string_view text) {
  texts_.push_back(text.find('\0') == text.npos ? std::string(text) : without_nul(text));
  held_bytes_ += static_cast<int64_t>(text.size());
  if (++size_ % kTextsPerChunk == 0 || held_bytes_ > kMaxHeldBytes) flush();
}

std::string Hdf5Texts::without_nul(std::string_view text) {
  if (nul_ == nullptr) {
    const std::string about = "pairs: an entry of " + path_ + " and a character in it, both from 0, where U+FFFD stands "
                              "for U+0000";
    nul_ = &writer_.numbers<int64_t>(path_ + "_nul", about);
  }
  std::string out;
  for (int64_t character = 0; !text.empty(); ++character) {
    const size_t bytes = utf8_step(text).bytes;
    if (text[0] == '\0') {
      nul_->append(size_);
      nul_->append(character);
      out += kReplacement;
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return out;
}

void Hdf5Texts::flush() {
  std::vector<const char*> strings;
  for (const std::string& text : texts_) strings.push_back(text.c_str());
  write(strings.data(), static_cast<int64_t>(strings.size()), text_type(H5T_VARIABLE));
  texts_.clear();
  held_bytes_ = 0;
}

Hdf5Writer::Hdf5Writer(const std::string& path, Format format)
    : path_(path), temporary_path_(path + ".tmp." + std::to_string(::getpid())) {
  check_replaceable(path);
  named([&] { file_ = create_file(temporary_path_, format); });
}

Hdf5Writer::~Hdf5Writer() {
  columns_.clear();
  silence_hdf5();
  if (file_ >= 0) H5Fclose(file_);
  if (!committed_) ::unlink(temporary_path_.c_str());
}

/// Adds the file's name to what the library says.
template <typename Function>
void Hdf5Writer::named(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (text.starts_with(path_)) throw;
    throw Error(error.kind(), "{}: cannot be written: {}", path_, text);
  }
}

int64_t Hdf5Writer::create(const std::string& path, int64_t type, int64_t chunk_rows, int64_t columns) {
  make_groups(file_, path);
  const Hdf5Id properties(TM_HDF5(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
  const int rank = columns > 0 ? 2 : 1;
  const auto width = static_cast<hsize_t>(columns);
  const hsize_t chunk[] = {static_cast<hsize_t>(chunk_rows), width};
  TM_HDF5(H5Pset_chunk(properties, rank, chunk));
  TM_HDF5(H5Pset_shuffle(properties));
  TM_HDF5(H5Pset_deflate(properties, kDeflateLevel));
  TM_HDF5(H5Pset_obj_track_times(properties, false));
  const hsize_t none[] = {0, width}, unlimited[] = {H5S_UNLIMITED, width};
  const Hdf5Id space(TM_HDF5(H5Screate_simple(rank, none, unlimited)), H5Sclose);
  return TM_HDF5(H5Dcreate2(file_, path.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT));
}

template <typename Column>
Column& Hdf5Writer::add(const std::string& path, const std::string& about, int64_t type, int64_t chunk_rows,
                        int64_t columns) {
  Column* column = nullptr;
  named([&] {
    column = new Column(*this, path, create(path, type, chunk_rows, columns), columns);
    columns_.emplace_back(column);
  });
  attribute(path, "about", about);
  return *column;
}

template <Hdf5Number T>
Hdf5Numbers<T>& Hdf5Writer::numbers(const std::string& path, const std::string& about) {
  return add<Hdf5Numbers<T>>(path, about, memory_type<T>(), Hdf5Numbers<T>::kChunkRows);
}

Hdf5Words& Hdf5Writer::words(const std::string& path, const std::string& about) {
  return add<Hdf5Words>(path, about, text_type(Hdf5Words::kWidth), kWordsPerChunk);
}

Hdf5Texts& Hdf5Writer::texts(const std::string& path, const std::string& about) {
  return add<Hdf5Texts>(path, about, text_type(H5T_VARIABLE), kTextsPerChunk);
}

Hdf5Matrix& Hdf5Writer::matrix(const std::string& path, const std::string& about, int64_t columns) {
  return add<Hdf5Matrix>(path, about, memory_type<float>(), Hdf5Matrix::chunk_rows(columns), columns);
}

void Hdf5Writer::virtual_column(const std::string& path, int64_t size, const std::vector<Hdf5Stretch>& stretches) {
  TM_ASSERT(!stretches.empty());
  const std::string directory = std::filesystem::path(path_).parent_path().string();
  std::string about;
  named([&] {
    make_groups(file_, path);
    const Hdf5Id properties(TM_HDF5(H5Pcreate(H5P_DATASET_CREATE)), H5Pclose);
    TM_HDF5(H5Pset_obj_track_times(properties, false));
    const Hdf5Id first = open_hdf5(directory + "/" + stretches[0].file);
    const Hdf5Extent extent = extent_of(first, path);
    about = hdf5_text_attribute(first, path, "about");
    const Hdf5Id space = space_of(size, extent.columns);
    for (const Hdf5Stretch& stretch : stretches) {
      if (stretch.count == 0) continue;
      const Hdf5Id target = space_of(size, extent.columns), source = space_of(stretch.count, extent.columns);
      const hsize_t begin[] = {static_cast<hsize_t>(stretch.begin), 0},
                    count[] = {static_cast<hsize_t>(stretch.count), static_cast<hsize_t>(extent.columns)};
      TM_HDF5(H5Sselect_hyperslab(target, H5S_SELECT_SET, begin, nullptr, count, nullptr));
      TM_HDF5(H5Pset_virtual(properties, target, stretch.file.c_str(), path.c_str(), source));
    }
    const Hdf5Id dataset(TM_HDF5(H5Dcreate2(file_, path.c_str(), extent.type, space, H5P_DEFAULT, properties, H5P_DEFAULT)),
                         H5Dclose);
  });
  attribute(path, "about", about);
}

void Hdf5Writer::attribute(const std::string& object, const std::string& name, const std::string& text) {
  named([&] {
    const Hdf5Id type = text_type(H5T_VARIABLE);
    const char* const string = text.c_str();
    const Hdf5Id space(TM_HDF5(H5Screate(H5S_SCALAR)), H5Sclose);
    const Hdf5Id attribute(TM_HDF5(H5Acreate_by_name(file_, object.c_str(), name.c_str(), type, space, H5P_DEFAULT,
                                                     H5P_DEFAULT, H5P_DEFAULT)),
                           H5Aclose);
    TM_HDF5(H5Awrite(attribute, type, &string));
  });
}

void Hdf5Writer::commit() {
  for (size_t i = 0; i < columns_.size(); ++i) columns_[i]->flush();
  columns_.clear();
  named([&] { TM_HDF5(H5Fclose(std::exchange(file_, -1))); });
  File file = File::open_append(temporary_path_);
  file.sync();
  file.close();
  rename_into_place(temporary_path_, path_);
  committed_ = true;
}

template class Hdf5Numbers<int8_t>;
template class Hdf5Numbers<int32_t>;
template class Hdf5Numbers<int64_t>;
template class Hdf5Numbers<float>;
template class Hdf5Numbers<double>;
template Hdf5Numbers<int8_t>& Hdf5Writer::numbers<int8_t>(const std::string&, const std::string&);
template Hdf5Numbers<int32_t>& Hdf5Writer::numbers<int32_t>(const std::string&, const std::string&);
template Hdf5Numbers<int64_t>& Hdf5Writer::numbers<int64_t>(const std::string&, const std::string&);
template Hdf5Numbers<float>& Hdf5Writer::numbers<float>(const std::string&, const std::string&);
template Hdf5Numbers<double>& Hdf5Writer::numbers<double>(const std::string&, const std::string&);

}  // namespace tokenmill::io
