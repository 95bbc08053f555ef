#include "io/hdf5_reader.h"

#include <algorithm>

#include "io/hdf5_guard.h"

namespace tokenmill::io {
namespace {

constexpr int64_t kFirstLoadRows = 16, kMaxLoadRows = 4096;

bool is_group(hid_t file, const std::string& path) {
  const Hdf5Id object(TM_HDF5(H5Oopen(file, path.c_str(), H5P_DEFAULT)), H5Oclose);
  return TM_HDF5(H5Iget_type(object)) == H5I_GROUP;
}

}  // namespace

Hdf5Reader::Hdf5Reader(const std::string& path, const RecordReaderOptions& options)
    : path_(path), max_record_bytes_(options.max_record_bytes), load_rows_(kFirstLoadRows) {
  const RecordPath place = split_record_path(path);
  const Hdf5Guard guard(path_);
  file_ = open_hdf5(place.file);
  prompts_ = open_hdf5_prompts(file_, place.dataset, path, max_record_bytes_);
  prompt_name_ = is_group(file_, place.dataset) ? "\"prompt_token_ids\":" : "\"prompt\":";
  if (options.ids_dataset.empty()) return;
  const std::string where = place.file + ":" + options.ids_dataset;
  ids_ = open_hdf5_ids(file_, options.ids_dataset, where, max_record_bytes_);
  if (ids_->num_rows() != prompts_->num_rows())
    throw Error(ErrorKind::kInput, "{}: has {} ids, and {} has {} rows; each row needs one", where, ids_->num_rows(),
                path, prompts_->num_rows());
}

void Hdf5Reader::seek(const RecordPosition& position) {
  row_ = std::clamp(position.offset, int64_t{0}, prompts_->num_rows());
  if (row_ < block_begin_ || row_ >= block_end_) load_rows_ = kFirstLoadRows;
}

/// The block that begins with row_.
void Hdf5Reader::load() {
  const Hdf5Guard guard(path_);
  int64_t rows = prompts_->load(row_, std::min(load_rows_, prompts_->num_rows() - row_));
  if (ids_) rows = std::min(rows, ids_->load(row_, rows));
  block_begin_ = row_;
  block_end_ = row_ + rows;
  load_rows_ = std::min(2 * load_rows_, kMaxLoadRows);
}

bool Hdf5Reader::next(Record& record) {
  if (row_ >= prompts_->num_rows()) return false;
  if (row_ < block_begin_ || row_ >= block_end_) load();
  const int64_t index = row_ - block_begin_;
  int64_t left_out = prompts_->oversized_bytes(index);
  record_ = "{";
  if (ids_) {  // first: the beginning of an oversized record tells whose it is
    left_out += ids_->oversized_bytes(index);
    record_ += "\"id\":";
    ids_->append_json(index, record_);
    record_ += ',';
  }
  record_ += prompt_name_;
  prompts_->append_json(index, record_);
  record_ += '}';
  record = {.line = row_ + 1, .offset = row_, .length = static_cast<int64_t>(record_.size()) + left_out};
  record.oversized = left_out > 0 || record.length > max_record_bytes_;
  if (record.oversized)
    record.prefix = std::string_view(record_).substr(0, kRecordPrefixBytes);
  else
    record.bytes = record_;
  ++row_;
  return true;
}

}  // namespace tokenmill::io
