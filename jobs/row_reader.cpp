#include "jobs/row_reader.h"

#include "kernels/core/error.h"

namespace tokenmill::jobs {
namespace {

[[noreturn]] void missing(const InputFile& file, int64_t row) {
  throw Error(ErrorKind::kIo, "{}: row {} of the job is no longer there; inputs must not change while the job runs",
              file.read_path, row);
}

}  // namespace

void RowReader::go_to(int64_t row, const io::RecordPosition& position) {
  const Index::Place place = index_.locate(row);
  const InputFile& file = index_.files()[place.file];
  if (!reader_ || file_ != place.file) {
    check_as_indexed(file);
    reader_ = io::open_records(file.read_path, options_);
    file_ = place.file;
    files_read_.insert(file_);
    next_row_ = file.first_row;
  }
  if (next_row_ != row && position.offset >= 0) {
    reader_->seek(position);
    next_row_ = row;
  } else if (next_row_ > row || next_row_ < place.row) {
    reader_->seek(place.position);
    next_row_ = place.row;
  }
  const int64_t passed = reader_->skip(row - next_row_);
  next_row_ += passed;
  if (next_row_ != row) missing(file, row);
}

void RowReader::check_unchanged() const {
  for (const size_t file : files_read_) check_as_indexed(index_.files()[file]);
}

std::string_view RowReader::read(int64_t row, RecordSource& source, const io::RecordPosition& position) {
  go_to(row, position);
  const InputFile& file = index_.files()[file_];
  io::Record record;
  if (!reader_->next(record)) missing(file, row);
  ++next_row_;
  source = {.row = row,
            .file = file.path,
            .line = record.line,
            .oversized_bytes = record.oversized ? record.length : 0,
            .oversized_prefix = record.prefix};
  return record.bytes;
}

}  // namespace tokenmill::jobs
