#pragma once
#include <memory>

#include "io/byte_stream.h"
#include "io/record_reader.h"

namespace tokenmill::io {

/// Lines of a stream as records. A line ends with LF or CR LF; the last one may end with the file. A byte-order mark at
/// the very front and lines of nothing but white space (space, tab, CR, VT, FF) are no records.
class JsonlReader final : public RecordReader {
 public:
  explicit JsonlReader(std::unique_ptr<ByteStream> stream, const RecordReaderOptions& options = {});
  bool next(Record& record) override;
  RecordPosition position() const override;
  void seek(const RecordPosition& position) override;
  bool can_jump() const override { return stream_->can_jump(); }
  const std::string& path() const override { return stream_->path(); }

 private:
  bool fill();
  void move_to_front(size_t held);
  bool skip_rest_of_line(Record& record);
  void skip_byte_order_mark();

  std::unique_ptr<ByteStream> stream_;
  int64_t max_record_bytes_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0;
  size_t read_bytes_;  // how much the next fill() asks for: small after a seek, then doubling
  size_t begin_ = 0;   // buffer_[begin_, end_) is read but not delivered
  size_t end_ = 0;
  int64_t buffer_offset_ = 0;  // of buffer_[0] in the stream
  int64_t line_ = 1;           // that starts at begin_
  std::string prefix_;         // of the oversized line passed over last
  bool at_end_ = false;
};

}  // namespace tokenmill::io
